"""The section of a card that describes a pretraining: objective, masking, vocabulary, corpus, length, scores."""

from collections.abc import Mapping
from typing import Any

from biosqueeze.card.markdown import table
from biosqueeze.manifest import Manifest

STAGE = "pretrain"
_OBJECTIVES = {
    "mlm": "masked language modelling",
    "mlm+nsp": "masked language modelling and next-sentence prediction",
    "mlm+sop": "masked language modelling and sentence order",
    "rtd": "replaced-token detection; the generator, which replaces the tokens, is in the directory generator",
}
_UNITS = {"piece": "single pieces", "word": "whole words", "ngram": "n-grams of whole words", "span": "spans of words"}


def pretraining_section(manifest: Manifest) -> list[str]:
    """Return the section of a checkpoint that `pretrain` wrote; empty for those of other stages."""
    if manifest.stage != STAGE or not manifest.history:
        return []
    options, metrics = manifest.history[-1].options, manifest.metrics
    rows = {
        "start": _start(manifest),
        "objective": _objective(options),
        "masking": _masking(options),
        "vocabulary": _vocabulary(manifest, options),
        "corpus": _corpus(options, metrics),
        "length": _length(options, metrics),
        "held-out text": ", ".join(f"{name} {_number(value)}" for name, value in _mapping(metrics, "held_out").items()),
    }
    return ["## Pretraining", table(("", ""), [(name, text) for name, text in rows.items() if text])]


def is_discriminator(manifest: Manifest) -> bool:
    """Return whether the model was trained to detect replaced tokens."""
    history = manifest.history
    return manifest.stage == STAGE and bool(history) and history[-1].options.get("objective") == "rtd"


def _start(manifest: Manifest) -> str:
    if manifest.parent is not None:
        return f"the weights of {manifest.parent.name}"
    shape, source = manifest.notes.get("shape"), manifest.notes.get("source")
    return f"random weights: {shape} ({source})" if shape and source else "random weights"


def _objective(options: Mapping[str, Any]) -> str:
    objective = str(options.get("objective"))
    adversarial = "; equal predictions with adversarial noise (ALUM)" if options.get("adversarial") else ""
    return _OBJECTIVES.get(objective, objective) + adversarial


def _masking(options: Mapping[str, Any]) -> str:
    unit, rate, maskings = (options.get(name) for name in ("mask_unit", "mask_rate", "maskings"))
    first, *climbing = str(rate).split(":")
    rates = f"{first} to {climbing[0]}" if len(climbing) > 1 else first
    levels = f" in {climbing[1]} levels" if len(climbing) > 1 else ""
    anew = f"{maskings} different maskings of each text" if maskings else "masked anew in each epoch"
    return f"{_UNITS.get(str(unit), unit)}, {rates} of the tokens{levels}, {anew}"


def _vocabulary(manifest: Manifest, options: Mapping[str, Any]) -> str:
    size, tokenizer = manifest.model.shape.vocabulary, options.get("tokenizer")
    origin = f", the tokenizer of {tokenizer}" if tokenizer else ""
    return f"{size:,} tokens{origin}" if size else ""


def _corpus(options: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    sources = options.get("corpus")
    names = ", ".join(map(str, sources)) if isinstance(sources, list | tuple) else str(sources)
    tokens, digest = metrics.get("corpus_tokens"), metrics.get("corpus_sha256")
    size = f"; {tokens:,} tokens" if isinstance(tokens, int) else ""
    return f"{names}{size}" + (f"; SHA-256 of the prepared text {digest}" if digest else "")


def _length(options: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    sequences = int(options.get("batch_size") or 1) * int(options.get("accumulate") or 1)
    sequences *= int(metrics.get("processes") or 1)
    long = options.get("long_length")
    later = f", then of {long} in the last {options.get('long_share'):.0%} of the steps" if long else ""
    length = metrics.get("max_length") or options.get("max_length")  # the model may have fewer positions
    size = f"{sequences:,} sequences of {length} tokens{later}"
    seen = f"{_number(metrics.get('tokens'))} tokens seen, without padding"
    return f"{_number(metrics.get('steps'))} steps of {size}; {seen}"


def _mapping(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = values.get(name)
    return found if isinstance(found, Mapping) else {}


def _number(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}" if isinstance(value, float) else "-"
