"""Batches of text: to calibrate activation ranges with, and to compare the int8 graph with PyTorch on."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.models.custom_heads.files import has_cosine
from biosqueeze.models.loading.detection import config_with_family, detect_head

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    TokenBatch = Mapping[str, NDArray[np.int64]]
    """`input_ids` and `attention_mask`, of pairs perhaps `token_type_ids`: int64 (batch, length)."""

COMPARED_LINES = 64
"""Lines to compare on; none of them is calibrated on, if the corpus has enough."""
MEASURED_LINES = 64
"""Lines on which a method without calibration measures the inputs of layers: those of the sample show outliers too."""
_BATCH_SIZE = 8
_ON_PAIRS = ("nli", "similarity", "qa")
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
    """Lines to calibrate with."""
    max_length: int
    """Tokens in a sequence."""
    seed: int


def text_batches(
    text: CalibrationText, checkpoint: Checkpoint
) -> tuple[Sequence["TokenBatch"], Sequence["TokenBatch"]]:
    """Return batches to calibrate with, and batches to compare on; a corpus too small for both serves as both.

    A checkpoint whose task is on pairs of texts gets pairs of lines, unless it encodes each text alone.

    Raises:
        SqueezeError: the text cannot be read, or `max_length` leaves no room for two texts.
    """
    from biosqueeze.data.lengths import fitting_length
    from biosqueeze.data.sequence_frame import SequenceFrame
    from biosqueeze.data.text.blocks import room_within
    from biosqueeze.data.text.corpus import DEMO, read_lines
    from biosqueeze.models.loading.load import load_tokenizer

    needed = text.lines + COMPARED_LINES
    first_lines = list(itertools.islice(read_lines(text.source or DEMO, text.field), _SAMPLED_FROM * needed))
    chosen = Random(text.seed).sample(first_lines, min(len(first_lines), needed))
    tokenizer = load_tokenizer(checkpoint)
    length = fitting_length(text.max_length, tokenizer.model_max_length)
    compared = chosen[text.lines :] if len(chosen) >= needed else chosen
    in_pairs = _is_on_pairs(checkpoint) and not has_cosine(checkpoint)
    if in_pairs:
        room_within(length, SequenceFrame.of(tokenizer, 2), least=2)  # raises where no text would be left
    calibration, comparison = (
        _batches(_encoded(lines, tokenizer, length, in_pairs=in_pairs), tokenizer.pad_token_id, text.seed)
        for lines in (chosen[: text.lines], compared)
    )
    return calibration, comparison


def _is_on_pairs(checkpoint: Checkpoint) -> bool:
    """Return whether the task is on pairs of texts; where it is not recorded, the head tells a model of questions."""
    if checkpoint.task is None:
        return detect_head(checkpoint, config_with_family(checkpoint)) == "question-answering"
    return checkpoint.task.name in _ON_PAIRS


def _encoded(lines: Sequence[str], tokenizer: Any, length: int, *, in_pairs: bool) -> list[dict[str, list[int]]]:
    """Return the ids of each line, or of each line and the one after it, with the types of the tokens."""
    if not lines:
        return []
    second = [[*lines[1:], lines[0]]] if in_pairs else []
    encoded = tokenizer(list(lines), *second, truncation=True, max_length=length)
    names = [name for name in ("input_ids", "token_type_ids") if name == "input_ids" or (in_pairs and name in encoded)]
    return [dict(zip(names, row, strict=True)) for row in zip(*(encoded[name] for name in names), strict=True)]


def _batches(encoded: Sequence[dict[str, list[int]]], pad_token_id: int, seed: int) -> Sequence["TokenBatch"]:
    """Return batches of sequences of similar length, with little padding, in random order."""
    import numpy as np

    from biosqueeze.data.collate import pad

    ordered = sorted(encoded, key=lambda row: len(row["input_ids"]))
    features = [{name: np.array(values, dtype=np.int64) for name, values in row.items()} for row in ordered]
    batches = [pad(features[i : i + _BATCH_SIZE], pad_token_id) for i in range(0, len(features), _BATCH_SIZE)]
    Random(seed).shuffle(batches)
    return batches
