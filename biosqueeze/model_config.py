"""Read config.json with checks of types and sizes, and compare the sizes with the weights. Torch-free."""

import re
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from biosqueeze.errors import SqueezeError
from biosqueeze.files import check_size, read_json
from biosqueeze.files.json_object import JsonObject, is_unicode

_ADVICE = "correct that value, or fetch the file again"
# Room for the names of some 50,000 labels; transformers copies the content several times.
_LARGEST_FILE = 1 << 22
# The largest sizes that are believed: several times those of the largest encoders that were published.
_LARGEST: Mapping[str, int] = {
    **dict.fromkeys(("num_hidden_layers", "n_layers", "num_hidden_groups"), 512),
    **dict.fromkeys(("num_attention_heads", "n_heads", "inner_group_num", "num_feedforward_networks"), 512),
    **dict.fromkeys(("num_key_value_heads",), 512),
    **dict.fromkeys(("hidden_size", "dim", "head_dim", "embedding_size", "intra_bottleneck_size"), 1 << 16),
    **dict.fromkeys(("intermediate_size", "hidden_dim"), 1 << 20),
    **dict.fromkeys(("vocab_size", "max_position_embeddings"), 1 << 24),
    **dict.fromkeys(("num_labels", "type_vocab_size"), 1 << 16),
    "chunk_size_feed_forward": 1,  # larger chunks fail for all lengths that are no multiple of them
}
_MAY_BE_ZERO = {"type_vocab_size", "num_labels", "chunk_size_feed_forward"}
_STRINGS = ("model_type", "position_embedding_type", "problem_type", "hidden_act", "activation")
_FLAGS = ("is_decoder", "tie_word_embeddings")
_DROPOUTS = (
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "classifier_dropout_prob"),
    *("dropout", "attention_dropout", "qa_dropout", "seq_classif_dropout"),
)
_NUMBERS = ("layer_norm_eps", "initializer_range")

# Keys of config.json, and the names of tensors whose first dimension the size is: the first pattern that occurs counts,
# because the inner LayerNorms of MobileBERT are narrower than its layers.
_TENSORS = (
    (("vocab_size",), (r"(^|\.)(embeddings\.(word|tok)_embeddings|embed_tokens)\.weight$",)),
    (("max_position_embeddings",), (r"(^|\.)embeddings\.position_embeddings\.weight$",)),
    (("type_vocab_size",), (r"(^|\.)embeddings\.token_type_embeddings\.weight$",)),
    (
        ("hidden_size", "dim"),
        (
            r"\.0\.output\.bottleneck\.LayerNorm\.\w+$",
            r"\.0\.(output\.LayerNorm|output_layer_norm|full_layer_layer_norm|mlp_norm|post_attention_layernorm)\.\w+$",
        ),
    ),
    (
        ("intermediate_size", "hidden_dim"),
        (
            r"\.layer\.0\.(intermediate\.dense|ffn\.lin1)\.weight$",
            r"\.albert_layers\.0\.ffn\.weight$",
            r"(^|\.)layers\.0\.mlp\.gate_proj\.weight$",
        ),
    ),
)
# Rows of the position embeddings beyond max_position_embeddings.
_SPARE_POSITIONS = {"mra": 2, "nystromformer": 2, "yoso": 2}
_LAYER = re.compile(r"(?:(?:encoder|transformer)\.layer|^(?:model\.)?layers)\.(\d{1,6})\.")


def read_config(path: Path) -> dict[str, Any]:
    """Read config.json.

    Raises:
        SqueezeError: it is not a JSON object, a value has the wrong type, or a size is not plausible.
    """
    check_size(path, _LARGEST_FILE)
    json = JsonObject(read_json(path), str(path), _ADVICE)
    for key in _STRINGS:
        json.optional(key, str)
    for key in _FLAGS:
        json.optional(key, bool)
    json.items("architectures", str)
    for key, most in _LARGEST.items():
        _check_size(json, key, most)
    for key in (*_DROPOUTS, *_NUMBERS):
        _check_number(json, key, most=1.0 if key in _DROPOUTS else float("inf"))
    _check_labels(json)
    _check_pad_token(json)
    _check_heads(json)
    return dict(json.values)


def _check_size(json: JsonObject, key: str, most: int) -> None:
    size, least = json.optional(key, int), 0 if key in _MAY_BE_ZERO else 1
    if size is not None and not least <= size <= most:
        raise json.error(key, f"is {_short(size)}, {least} to {most:,} was expected")


def _check_number(json: JsonObject, key: str, most: float) -> None:
    number = json.optional(key, float)
    if number is not None and not (isfinite(number) and 0 <= number <= most):
        expected = f"0 to {most:g}" if isfinite(most) else "a finite number, at least 0,"
        raise json.error(key, f"is {_short(number)}, {expected} was expected")


def _short(number: float) -> str:
    """Return a number in at most some 20 characters."""
    return f"{number:,}" if abs(number) < 1e15 else f"{number:.3g}"


def _check_labels(json: JsonObject) -> None:
    """Check that id2label names the labels 0, 1, ..., and that label2id is its inverse in type."""
    names = json.optional("id2label", dict) or {}
    if len(names) > _LARGEST["num_labels"]:
        raise json.error("id2label", f"has {len(names):,} labels, at most {_LARGEST['num_labels']:,} were expected")
    wrong = next((key for key in names if not (key.isascii() and key.isdigit() and len(key) < 7)), None)
    if wrong is not None:
        raise json.error("id2label", f"has the key {wrong[:40]!r}, numbers of labels were expected")
    unnamed = next((key for key, name in names.items() if not isinstance(name, str | int | float)), None)
    if unnamed is not None:
        raise json.error(f"id2label.{unnamed}", "is not a name, a string was expected")
    garbled = next((key for key, name in names.items() if not is_unicode(str(name))), None)
    if garbled is not None:
        raise json.error(f"id2label.{garbled}", "is not valid text")
    json.optional("label2id", dict)


def _check_pad_token(json: JsonObject) -> None:
    token, rows = json.optional("pad_token_id", int), json.optional("vocab_size", int)
    if token is not None and not 0 <= token < (rows or _LARGEST["vocab_size"]):
        raise json.error("pad_token_id", f"is {_short(token)}, an id below vocab_size was expected")


def _check_heads(json: JsonObject) -> None:
    for hidden_key, heads_key in (("hidden_size", "num_attention_heads"), ("dim", "n_heads")):
        hidden, heads = json.optional(hidden_key, int), json.optional(heads_key, int)
        if hidden and heads and hidden % heads and "head_dim" not in json.values:
            raise json.error(hidden_key, f"({hidden:,}) is not a multiple of {heads_key} ({heads:,})")
    heads, shared = json.optional("num_attention_heads", int), json.optional("num_key_value_heads", int)
    if heads and shared and heads % shared:
        raise json.error("num_attention_heads", f"({heads:,}) is not a multiple of num_key_value_heads ({shared:,})")


def check_sizes(name: str, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Check that the sizes in config.json are those of the weights; sizes that either lacks are not compared.

    Args:
        name: of the checkpoint, for the message.
        config: as `read_config` returns it.
        shapes: of the weights, by tensor name.

    Raises:
        SqueezeError: they differ, or config.json has more layers than the weights.
    """
    for keys, patterns in _TENSORS:
        key = next((key for key in keys if config.get(key) is not None), None)
        tensors = (tensor for pattern in patterns for tensor in shapes if re.search(pattern, tensor))
        tensor = next(tensors, None)
        rows = shapes[tensor][:1] if tensor else ()
        spare = _SPARE_POSITIONS.get(config.get("model_type", ""), 0) if key == "max_position_embeddings" else 0
        if key and rows and rows != (config[key] + spare,):
            raise _mismatch(name, f"{key} is {config[key]:,}", f"{tensor} has {rows[0]:,} rows")
    layers = next((config[key] for key in ("num_hidden_layers", "n_layers") if config.get(key) is not None), 0)
    present = {match[1] for tensor in shapes if (match := _LAYER.search(tensor))}
    if present and layers > len(present):
        raise _mismatch(name, f"there are {layers:,} layers", f"the weights have {len(present):,}")


def _mismatch(name: str, configured: str, present: str) -> SqueezeError:
    return SqueezeError(
        f"{name}: by config.json {configured}, but {present}; the two are not of the same model: fetch both again"
    )
