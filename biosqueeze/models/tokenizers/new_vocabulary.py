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
    """Check the padding token for the families whose positions count from it: its id, and that no text has it.

    Args:
        tokenizer: the tokenizer.
        config: of the model, see `families.longest_input`.
        way_out: what else to do, for the message.

    Raises:
        SqueezeError: it has another id than the model's, or begins or ends texts too, and would have no position.
    """
    family, padding, needed = family_of(config), tokenizer.pad_token_id, first_position(config) - 1
    if not family.first_position:
        return
    if padding != needed:
        problem = f"has the id {padding}, and {family.name} counts positions from the id of its padding, {needed}"
    elif padding in tokenizer.encode(""):
        problem = f"pads and is part of every text, and {family.name} gives no positions to padding"
    else:
        return
    advice = f"make the tokenizer with `biosqueeze vocab --family roberta`, or {way_out}"
    raise SqueezeError(f"{tokenizer.pad_token} {problem}; {advice}")
