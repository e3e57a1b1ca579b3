"""Ways to turn a checkpoint's ONNX graph into an int8 one, one file each.

A file has `NEEDS_CALIBRATION`, `USES` and `quantize(job)`, which writes `job.target` and returns what the manifest
should remember of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from biosqueeze.checkpoint import Checkpoint

# A classifier of a few labels costs no time, and its rounding would go straight into the answer: it stays in float32.
FEW_OUTPUTS = 24
# Options of the stage that are not for every method.
OF_SOME = ("calibration_samples", "observer", "reduce_range")


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a quantizer is given."""

    checkpoint: Checkpoint
    """Weights, config and tokenizer."""
    source: Path
    """The float32 graph."""
    target: Path
    """Where the int8 graph goes."""
    batches: Sequence[Mapping[str, NDArray[np.int64]]] = ()
    """Calibration batches: `input_ids` and `attention_mask`, int64 (batch, length), padded to their longest."""
    embeddings: bool = True
    """Store embedding tables as int8 too, with one scale per row."""
    reduce_range: bool = False
    """Weights of seven bits, for processors whose int8 products saturate at 16 bits."""
    observer: str = "minmax"
    """How static ranges are found from calibration: minmax or kl."""


class Quantizer(Protocol):
    """What a file in this folder offers."""

    NEEDS_CALIBRATION: bool
    USES: frozenset[str]
    """Which it takes of the options that are not for every method: see `OF_SOME`."""

    def quantize(self, job: Job) -> dict[str, Any]:
        """Write the int8 graph to `job.target`; returns notes for the manifest."""
