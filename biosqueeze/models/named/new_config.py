"""Configs of new models: a named shape, the special tokens of a tokenizer, the family's defaults for the rest."""

from typing import Any

from transformers import PreTrainedConfig, PreTrainedTokenizerFast
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from biosqueeze.models.families import FAMILIES
from biosqueeze.models.named.shapes import Shape


def new_config(shape: Shape, vocabulary: int, tokenizer: PreTrainedTokenizerFast | None = None) -> PreTrainedConfig:
    """Return the config of a shape; without a tokenizer, ids of special tokens but padding are the family's.

    Args:
        shape: of the model.
        vocabulary: rows of the embedding.
        tokenizer: of the model.
    """
    family = FAMILIES[shape.family]
    sizes = family.shape_changes(layers=shape.layers, hidden=shape.hidden, heads=shape.heads, ffn=shape.ffn)
    sizes["max_position_embeddings"] = shape.positions + family.first_position
    if shape.embedding is not None:
        sizes["embedding_size"] = shape.embedding
    build: Any = CONFIG_MAPPING[shape.family]
    if tokenizer is None:
        special = {"pad_token_id": max(0, family.first_position - 1)}
    else:
        special = _special_ids(tokenizer, with_ends=hasattr(build, "cls_token_id"))
    config: PreTrainedConfig = build(vocab_size=vocabulary, **sizes, **special, **shape.settings)
    return config


def _special_ids(tokenizer: PreTrainedTokenizerFast, *, with_ends: bool) -> dict[str, int]:
    """Return the ids of special tokens under their config keys."""
    tokens = {
        "pad_token_id": int(tokenizer.pad_token_id),
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    if with_ends:
        tokens |= _tokens_around(tokenizer)
    return {key: number for key, number in tokens.items() if number is not None}


def _tokens_around(tokenizer: PreTrainedTokenizerFast) -> dict[str, int | None]:
    """Return the ids around a text, each twice, as ModernBERT's config has them; its defaults are of its vocabulary."""
    start = tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id
    end = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
    return {"bos_token_id": start, "cls_token_id": start, "eos_token_id": end, "sep_token_id": end}
