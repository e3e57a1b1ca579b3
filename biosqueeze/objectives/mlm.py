"""Masked language modelling: cross entropy with the true tokens (compact-transformers paper, equation 1)."""

from torch import Tensor
from torch.nn import functional

from biosqueeze.objectives import Signals

KINDS = ("mlm",)
NEEDS_TEACHER_LOGITS = False


def loss(signals: Signals) -> Tensor:
    """Mean cross entropy of the student's distribution with the true token, over the masked positions. Scalar."""
    return functional.cross_entropy(signals.student_logits.float(), signals.labels)
