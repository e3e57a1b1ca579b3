"""What a checkpoint remembers: facts of the model, hashes, environment, history. Torch-free."""

import hashlib
import json
import platform
import re
import struct
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from math import prod
from pathlib import Path
from typing import Any

from biosqueeze import __version__
from biosqueeze.errors import SqueezeError

FILE_NAME = "biosqueeze.json"
FORMAT = 1
# A head that stock transformers lacks lies in a file of its own, whose metadata say under this key which one it is.
HEAD_FILE, HEAD_MARK = "head.safetensors", "biosqueeze_head"
PARTS = ("embeddings", "attention", "ffn", "head")

# Tensor names of BERT, RoBERTa, ELECTRA, DistilBERT, ALBERT and MobileBERT, the first pattern that matches wins.
_PART_PATTERNS = (
    ("attention", re.compile(r"\.attention\.|\.sa_layer_norm\.|\.bottleneck\.input\.")),
    (
        "ffn",
        re.compile(
            r"\.(intermediate|ffn|ffn_output|full_layer_layer_norm|output_layer_norm)\.|\.layers?\.\d+\.output\."
        ),
    ),
    ("embeddings", re.compile(r"(^|\.)(embeddings|embeddings_project|embedding_hidden_mapping_in)\.")),
)
_METADATA = "__metadata__"  # the entry of a safetensors header that is no tensor
_NO_PARAMETER = re.compile(r"(position_ids|token_type_ids|\.total_ops|\.total_params)$")

_PACKAGES = (
    "torch",
    "transformers",
    "accelerate",
    "onnx",
    "onnxruntime",
    "torch-pruning",
    "neural-compressor",
)
_CPU_FLAGS = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx_vnni",
    "amx_int8",
    "amx_bf16",
    "asimddp",
    "i8mm",
)


def read(directory: Path) -> dict[str, Any] | None:
    """The manifest of a directory, or None where there is none.

    Raises:
        SqueezeError: the file is there and is no JSON object.
    """
    path = directory / FILE_NAME
    if not path.is_file():
        return None
    return read_json(path)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        SqueezeError: it is no UTF-8, no JSON, or no object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise SqueezeError(f"{path} is not valid JSON ({error}); restore the file or fetch it again") from error
    if not isinstance(value, dict):
        raise SqueezeError(f"{path} holds a {type(value).__name__}, a JSON object was expected; fetch it again")
    return value


def part_of(tensor_name: str) -> str:
    """Which part of the model a tensor belongs to: embeddings, attention, ffn or head (pooler included)."""
    return next((part for part, pattern in _PART_PATTERNS if pattern.search(tensor_name)), "head")


def tensor_shapes(safetensors_file: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes in a safetensors file, read from its header alone.

    Raises:
        SqueezeError: the header or the data is cut short.
    """
    header = _header(safetensors_file)
    return {name: tuple(tensor["shape"]) for name, tensor in header.items() if name != _METADATA}


def own_head(directory: Path) -> str | None:
    """The head in a directory's head.safetensors; None where there is none that biosqueeze wrote.

    Raises:
        SqueezeError: the file is cut short.
    """
    path = directory / HEAD_FILE
    noted = _header(path).get(_METADATA) or {} if path.is_file() else {}
    head: str | None = noted.get(HEAD_MARK)
    return head


def _header(safetensors_file: Path) -> dict[str, Any]:
    """The header, its metadata included."""
    damaged = SqueezeError(f"{safetensors_file} is damaged or cut short; fetch or copy it again")
    size = safetensors_file.stat().st_size
    with safetensors_file.open("rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else size
        if 8 + length > size:
            raise damaged
        try:
            header: dict[str, Any] = json.loads(file.read(length))
        except ValueError as error:
            raise damaged from error
    ends = (tensor["data_offsets"][1] for name, tensor in header.items() if name != _METADATA)
    if 8 + length + max(ends, default=0) != size:
        raise damaged
    return header


def count_by_part(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Parameters in each of `PARTS`, and their total."""
    counts = dict.fromkeys(PARTS, 0)
    for name, shape in shapes.items():
        if not _NO_PARAMETER.search(name):
            counts[part_of(name)] += prod(shape)
    return counts | {"total": sum(counts.values())}


def head_of(config: Mapping[str, Any]) -> str:
    """The kind of head that config.json's architecture names: mlm, token-classification, ... or base."""
    architecture = (config.get("architectures") or [""])[0]
    endings = {
        "ForMaskedLM": "mlm",
        "ForPreTraining": "base" if config.get("model_type") == "electra" else "mlm",
        "ForTokenClassification": "token-classification",
        "ForSequenceClassification": "sequence-classification",
        "ForQuestionAnswering": "question-answering",
    }
    return next((head for ending, head in endings.items() if architecture.endswith(ending)), "base")


def shape_facts(config: Mapping[str, Any]) -> dict[str, int | None]:
    """Layers, hidden size, heads, intermediate size, vocabulary and positions from a config.json of any family."""

    def first(*keys: str) -> int | None:
        return next((int(config[key]) for key in keys if config.get(key) is not None), None)

    return {
        "layers": first("num_hidden_layers", "n_layers"),
        "hidden": first("hidden_size", "dim"),
        "heads": first("num_attention_heads", "n_heads"),
        "ffn": first("intermediate_size", "hidden_dim"),
        "vocabulary": first("vocab_size"),
        "positions": first("max_position_embeddings"),
    }


def sha256_of(files: Iterable[Path]) -> str:
    """One SHA-256 over the bytes of all the files, in the order given."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def environment() -> dict[str, Any]:
    """Versions and processor, without importing what they belong to."""
    return {
        "biosqueeze": __version__,
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
        "cpu": cpu_name(),
        "cpu_flags": [flag for flag in _CPU_FLAGS if flag in _cpu_flags()],
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def _version(package: str) -> str | None:
    import importlib.metadata  # 15 ms that --help need not pay

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpuinfo(key: str) -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), "")


def cpu_name() -> str:
    """The processor's name, or its architecture where the system does not tell."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _cpu_flags() -> set[str]:
    return set((_cpuinfo("flags") or _cpuinfo("Features")).split())


def now() -> str:
    """The time in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).replace(microsecond=0).isoformat()
