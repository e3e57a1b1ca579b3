"""Masked language modelling: cross entropy with the true tokens (compact-transformers paper, equation 1)."""

from torch import Tensor
from torch.nn import functional

from biosqueeze.objectives import Rows, full

KINDS = ("mlm",)
READS = "rows"
UNIT = "labelled"
NEEDS_TEACHER_LOGITS = False


def loss(rows: Rows) -> Tensor:
    """Sum over the masked positions of the cross entropy with the true token. Scalar."""
    return functional.cross_entropy(full(rows.student), rows.labels, ignore_index=-100, reduction="sum")
