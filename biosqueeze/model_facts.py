"""Facts of a model from its files alone: shape, head, tensor shapes, parameters by part, hashes. Torch-free."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from biosqueeze.errors import SqueezeError

# A head that stock transformers lacks is saved in a file of its own; this key of the file's metadata names the head.
HEAD_FILE, HEAD_MARK = "head.safetensors", "biosqueeze_head"
PARTS = ("embeddings", "attention", "ffn", "head")

# Tensor names of all families; the first pattern that matches wins.
_PART_PATTERNS = (
    (
        "attention",
        re.compile(
            r"\.attention\.|\.relative_attention_bias\.|\.sa_layer_norm\.|\.bottleneck\.input\.|\.(self_)?attn(_norm)?\.|\.input_layernorm\."
        ),
    ),
    (
        "ffn",
        re.compile(
            r"\.(intermediate|ffn|ffn_output|full_layer_layer_norm|output_layer_norm)\.|\.layers?\.\d+\.output\."
            r"|\.mlp(_norm)?\.|\.post_attention_layernorm\.|(^|\.)encoder\.conv\.|^(model\.)?(final_)?norm\."
        ),
    ),
    (
        "embeddings",
        re.compile(
            r"(^|\.)(embeddings|embed_tokens|embeddings_project|embedding_hidden_mapping_in|rel_embeddings|encoder\.LayerNorm)\."
        ),
    ),
)
# Parameters of MLM heads that are tied to others; some checkpoints contain copies of them nevertheless.
_TIED = re.compile(
    r"(lm_head\.decoder|cls\.predictions\.decoder|predictions\.decoder)\.(weight|bias)"
    r"|(generator_lm_head|vocab_projector|decoder|lm_head)\.weight"
)
_NO_PARAMETER = re.compile(r"(position_ids|token_type_ids|\.total_ops|\.total_params)$")
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

    @property
    def summary(self) -> str:
        """The sizes that a cut can change, for people."""
        return f"{self.layers} layers, {self.heads} heads, {self.ffn} neurons and a hidden size of {self.hidden}"


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


def output_width(config: Mapping[str, Any]) -> int | None:
    """Return the size of the last axis of a model's outputs; None where config.json does not tell."""
    head, shape = head_of(config), shape_of(config)
    known = {"base": shape.hidden, "mlm": shape.vocabulary, "question-answering": 2}
    return known[head] if head in known else len(config.get("id2label") or ()) or config.get("num_labels")


def part_of(tensor_name: str) -> str:
    """Return the part of the model that a tensor belongs to: embeddings, attention, ffn or head (with the pooler)."""
    return next((part for part, pattern in _PART_PATTERNS if pattern.search(tensor_name)), "head")


def count_by_part(shapes: Mapping[str, tuple[int, ...]], config: Mapping[str, Any]) -> dict[str, int]:
    """Count the parameters in each of `PARTS`, and their total; copies of tied ones do not count.

    Args:
        shapes: of a checkpoint's tensors, by name.
        config: its config.json.
    """
    counts = dict.fromkeys(PARTS, 0)
    is_tied = config.get("tie_word_embeddings", True)
    for name, shape in shapes.items():
        if not _NO_PARAMETER.search(name) and not (is_tied and _TIED.fullmatch(name)):
            counts[part_of(name)] += prod(shape)
    return counts | {"total": sum(counts.values())}


def tensor_shapes(safetensors_file: Path) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the tensors in a safetensors file, read from its header alone.

    Raises:
        SqueezeError: the file is damaged or cut short.
    """
    with _open_header(safetensors_file) as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.offset_keys()}


def custom_head_in(directory: Path) -> str | None:
    """Return the name of the head in a directory's head.safetensors; None where biosqueeze did not write one.

    Raises:
        SqueezeError: the file is damaged or cut short.
    """
    path = directory / HEAD_FILE
    if not path.is_file():
        return None
    with _open_header(path) as file:
        head: str | None = (file.metadata() or {}).get(HEAD_MARK)
    return head


@contextmanager
def _open_header(safetensors_file: Path) -> Iterator[Any]:
    """Map a safetensors file into memory; the library checks that header and file size agree."""
    from safetensors import SafetensorError, safe_open  # imports NumPy

    try:
        with safe_open(safetensors_file, framework="np") as file:
            yield file
    except SafetensorError as error:
        raise SqueezeError(f"{safetensors_file} is damaged or cut short; fetch or copy it again") from error


def sha256_of(files: Iterable[Path]) -> str:
    """Return one SHA-256 over the bytes of all the files, in the order given."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
