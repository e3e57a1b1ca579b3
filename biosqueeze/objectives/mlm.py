"""Masked language modelling: cross entropy with the original tokens (compact-transformers paper, equation 1)."""

from torch import Tensor
from torch.nn import functional

from biosqueeze.models.full_precision import full
from biosqueeze.objectives import LogitRows

KINDS = ("mlm",)
READS = "rows"
UNIT = "labelled"
NEEDS_TEACHER_LOGITS = False


def loss(rows: LogitRows) -> Tensor:
    """Sum the cross entropy with the original token over the masked positions. Scalar."""
    return functional.cross_entropy(full(rows.student), rows.labels, ignore_index=-100, reduction="sum")
