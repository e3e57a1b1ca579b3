"""Methods that quantize a checkpoint's ONNX graph to int8, one file each.

A file has `NEEDS_CALIBRATION`, `USES` and `quantize(job)`, which writes `job.target` and returns facts for the
manifest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from biosqueeze.checkpoint import Checkpoint

if TYPE_CHECKING:
    from biosqueeze.quantizers.calibration import TokenBatch

# A classifier with few labels costs little time, and rounding it would change the logits directly: it stays float32.
FEW_OUTPUTS = 24


@dataclass(frozen=True, kw_only=True)
class QuantizationJob:
    """Input, output and settings of one quantization."""

    checkpoint: Checkpoint
    """Weights, config and tokenizer."""
    source: Path
    """The float32 graph."""
    target: Path
    """The int8 graph to write."""
    batches: Sequence["TokenBatch"] = ()
    """Calibration batches: `input_ids` and `attention_mask`, int64 (batch, length), padded to their longest."""
    embeddings: bool = True
    """Store embedding tables as int8 too, with one scale per row."""
    observer: str = "minmax"
    """How static ranges are derived from calibration: minmax or kl."""


class Quantizer(Protocol):
    """The interface of a file in this folder."""

    NEEDS_CALIBRATION: bool
    USES: frozenset[str]
    """The options marked `UsedBy` that the method uses."""

    def quantize(self, job: QuantizationJob) -> dict[str, Any]:
        """Write the int8 graph to `job.target`; return facts for the manifest."""
