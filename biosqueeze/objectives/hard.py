"""Hard labels: cross entropy with the gold tags, on the tokens that have one."""

from torch import Tensor
from torch.nn import functional

from biosqueeze.objectives import Signals

KINDS = ("task",)
NEEDS_TEACHER_LOGITS = False


def loss(signals: Signals) -> Tensor:
    """Mean cross entropy with the gold label over the labelled rows; zero (with a gradient) where none is. Scalar."""
    known = signals.labels >= 0
    total = functional.cross_entropy(signals.student_logits[known].float(), signals.labels[known], reduction="sum")
    return total / known.sum().clamp(min=1)
