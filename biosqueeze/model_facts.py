"""Facts of a model from its files alone: shape, head, tensor shapes, parameters by part, hashes. Torch-free."""

import hashlib
import json
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from biosqueeze.errors import SqueezeError

# A head that stock transformers lacks is saved in a file of its own; this key of the file's metadata names the head.
HEAD_FILE, HEAD_MARK = "head.safetensors", "biosqueeze_head"
PARTS = ("embeddings", "attention", "ffn", "head")

# Tensor names of BERT, RoBERTa, ELECTRA, DistilBERT, ALBERT and MobileBERT; the first pattern that matches wins.
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
_NO_PARAMETER = re.compile(r"(position_ids|token_type_ids|\.total_ops|\.total_params)$")
_METADATA = "__metadata__"  # the entry of a safetensors header that is not a tensor
_HEAD_ENDINGS = {
    "ForMaskedLM": "mlm",
    "ForPreTraining": "mlm",
    "ForTokenClassification": "token-classification",
    "ForSequenceClassification": "sequence-classification",
    "ForQuestionAnswering": "question-answering",
}


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Sizes of an encoder; None where config.json does not give one."""

    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    ffn: int | None = None
    vocabulary: int | None = None
    positions: int | None = None

    def known(self) -> dict[str, int]:
        """Return the sizes that are known, by name."""
        return {name: size for name, size in vars(self).items() if size is not None}


def shape_of(config: Mapping[str, Any]) -> ModelShape:
    """Return layers, hidden size, heads, intermediate size, vocabulary and positions from any family's config.json."""

    def first(*keys: str) -> int | None:
        return next((int(config[key]) for key in keys if config.get(key) is not None), None)

    return ModelShape(
        layers=first("num_hidden_layers", "n_layers"),
        hidden=first("hidden_size", "dim"),
        heads=first("num_attention_heads", "n_heads"),
        ffn=first("intermediate_size", "hidden_dim"),
        vocabulary=first("vocab_size"),
        positions=first("max_position_embeddings"),
    )


def head_of(config: Mapping[str, Any]) -> str:
    """Return the kind of head that config.json's architecture names: mlm, token-classification, ... or base."""
    architecture = (config.get("architectures") or [""])[0]
    if architecture.endswith("ForPreTraining") and config.get("model_type") == "electra":
        return "base"  # the discriminator's head predicts no tokens
    return next((head for ending, head in _HEAD_ENDINGS.items() if architecture.endswith(ending)), "base")


def part_of(tensor_name: str) -> str:
    """Return the part of the model that a tensor belongs to: embeddings, attention, ffn or head (with the pooler)."""
    return next((part for part, pattern in _PART_PATTERNS if pattern.search(tensor_name)), "head")


def count_by_part(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Count the parameters in each of `PARTS`, and their total."""
    counts = dict.fromkeys(PARTS, 0)
    for name, shape in shapes.items():
        if not _NO_PARAMETER.search(name):
            counts[part_of(name)] += prod(shape)
    return counts | {"total": sum(counts.values())}


def tensor_shapes(safetensors_file: Path) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the tensors in a safetensors file, read from its header alone.

    Raises:
        SqueezeError: the header or the data is cut short.
    """
    header = _read_header(safetensors_file)
    return {name: tuple(tensor["shape"]) for name, tensor in header.items() if name != _METADATA}


def custom_head_in(directory: Path) -> str | None:
    """Return the name of the head in a directory's head.safetensors; None where biosqueeze did not write one.

    Raises:
        SqueezeError: the file is cut short.
    """
    path = directory / HEAD_FILE
    metadata = _read_header(path).get(_METADATA) or {} if path.is_file() else {}
    head: str | None = metadata.get(HEAD_MARK)
    return head


def _read_header(safetensors_file: Path) -> dict[str, Any]:
    """Return the header of a safetensors file, its metadata included."""
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


def sha256_of(files: Iterable[Path]) -> str:
    """Return one SHA-256 over the bytes of all the files, in the order given."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
