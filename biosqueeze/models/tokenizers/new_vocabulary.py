"""Checks of a tokenizer that a model is built for, or moved to."""

from typing import Any

from transformers import PreTrainedTokenizerFast

from biosqueeze.errors import SqueezeError
from biosqueeze.models.families import family_of, first_position

_SPARE_IDS = 128


def vocabulary_size(tokenizer: PreTrainedTokenizerFast) -> int:
    """Return the rows that the embedding needs: the highest id and one.

    Raises:
        SqueezeError: many ids are unused, or there are none.
    """
    vocabulary = tokenizer.get_vocab()
    if not vocabulary:
        raise SqueezeError("the tokenizer has no tokens; give another one, or make one with `biosqueeze vocab`")
    rows = max(vocabulary.values()) + 1
    if rows > len(vocabulary) + _SPARE_IDS:
        raise SqueezeError(
            f"the tokenizer has {len(vocabulary):,} tokens and ids up to {rows - 1:,}; number them without gaps, "
            "or make one with `biosqueeze vocab`"
        )
    return rows


def check_padding(tokenizer: PreTrainedTokenizerFast, config: Any, way_out: str) -> None:
    """Check that the padding token has the id that the positions of a model count from, in families where they do.

    Args:
        tokenizer: the tokenizer.
        config: of the model, see `families.longest_input`.
        way_out: what else to do, for the message.

    Raises:
        SqueezeError: it has another.
    """
    padding, needed = tokenizer.pad_token_id, first_position(config) - 1
    if family_of(config).first_position and padding != needed:
        raise SqueezeError(
            f"{tokenizer.pad_token} has the id {padding}, and {family_of(config).name} counts positions from the "
            f"id of its padding, {needed}; make the tokenizer with `biosqueeze vocab --family roberta`, or "
            f"{way_out}"
        )
