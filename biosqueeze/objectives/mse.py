"""Alignment of the last hidden states: mean squared error (compact-transformers paper, equation 5, hidden part)."""

from torch import Tensor
from torch.nn import functional

from biosqueeze.objectives import Signals

KINDS = ("mlm", "task")
NEEDS_TEACHER_LOGITS = False


def loss(signals: Signals) -> Tensor:
    """Mean over tokens and dimensions of the squared difference. Scalar."""
    return functional.mse_loss(signals.student_hidden.float(), signals.teacher_hidden.float())
