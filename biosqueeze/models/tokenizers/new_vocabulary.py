"""Checks of a tokenizer that a model is built for, or moved to."""

from transformers import PreTrainedTokenizerFast

from biosqueeze.errors import SqueezeError
from biosqueeze.models.families import Family

_SPARE_IDS = 128


def vocabulary_size(tokenizer: PreTrainedTokenizerFast) -> int:
    """Return the rows that the embedding needs: the highest id and one.

    Raises:
        SqueezeError: many ids are unused.
    """
    vocabulary = tokenizer.get_vocab()
    rows = max(vocabulary.values()) + 1
    if rows > len(vocabulary) + _SPARE_IDS:
        raise SqueezeError(
            f"the tokenizer has {len(vocabulary):,} tokens and ids up to {rows - 1:,}; number them without gaps, "
            "or make one with `biosqueeze vocab`"
        )
    return rows


def check_padding(tokenizer: PreTrainedTokenizerFast, family: Family, way_out: str) -> None:
    """Check that the padding token has the id that the family's positions count from.

    Raises:
        SqueezeError: it has another; `way_out` is what else to do.
    """
    padding = tokenizer.pad_token_id
    if family.first_position and padding != family.first_position - 1:
        raise SqueezeError(
            f"{tokenizer.pad_token} has the id {padding}, and {family.name} counts positions from the id of its "
            f"padding, {family.first_position - 1}; make the tokenizer with `biosqueeze vocab --family roberta`, or "
            f"{way_out}"
        )
