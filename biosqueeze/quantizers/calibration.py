"""Batches of text: to calibrate activation ranges with, and to compare the int8 graph with PyTorch on."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.progress import warn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    TokenBatch = Mapping[str, NDArray[np.int64]]
    """`input_ids` and `attention_mask`, int64 (batch, length)."""

SAMPLE = "demo:text"
COMPARED_LINES = 64
"""Lines to compare on; none of them is calibrated on, if the corpus has enough."""
_BATCH_SIZE = 8
# Lines are sampled from the beginning of a corpus: this many times the number that is needed.
_SAMPLED_FROM = 20


@dataclass(frozen=True, kw_only=True)
class CalibrationText:
    """Where the text comes from, and how much of it is used."""

    source: str | None
    """File or directory; None for the generated sample."""
    field: str
    """Field of a .jsonl record with the text."""
    lines: int
    """Lines to calibrate with; 0 for a method without calibration."""
    max_length: int
    """Tokens in a sequence."""
    seed: int


def text_batches(
    text: CalibrationText, checkpoint: Checkpoint
) -> tuple[Sequence["TokenBatch"], Sequence["TokenBatch"]]:
    """Return batches to calibrate with, and batches to compare on; a corpus too small for both serves as both."""
    from biosqueeze.data.corpus import read_lines
    from biosqueeze.models.load import load_tokenizer

    if text.lines and text.source is None:
        warn(f"calibrating on {SAMPLE}, which is only a sample; give --calibration with text like that to be read")
    needed = text.lines + COMPARED_LINES
    first_lines = list(itertools.islice(read_lines(text.source or SAMPLE, text.field), _SAMPLED_FROM * needed))
    chosen = Random(text.seed).sample(first_lines, min(len(first_lines), needed))
    tokenizer = load_tokenizer(checkpoint)
    length = min(text.max_length, tokenizer.model_max_length)
    compared = chosen[text.lines :] if len(chosen) >= needed else chosen
    calibration, comparison = (
        _batches(lines, tokenizer, length, text.seed) for lines in (chosen[: text.lines], compared)
    )
    return calibration, comparison


def _batches(lines: Sequence[str], tokenizer: Any, length: int, seed: int) -> Sequence["TokenBatch"]:
    """Return batches of lines of similar length, with little padding, in random order."""
    import numpy as np

    from biosqueeze.data.collate import pad

    if not lines:
        return []
    ids = sorted(tokenizer(list(lines), truncation=True, max_length=length)["input_ids"], key=len)
    features = [{"input_ids": np.array(row, dtype=np.int64)} for row in ids]
    batches = [pad(features[i : i + _BATCH_SIZE], tokenizer.pad_token_id) for i in range(0, len(features), _BATCH_SIZE)]
    Random(seed).shuffle(batches)
    return batches
