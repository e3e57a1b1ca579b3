"""Alignment of the last hidden states: one minus their cosine (compact-transformers paper, equation 3)."""

from torch import Tensor
from torch.nn import functional

from biosqueeze.objectives import Signals

KINDS = ("mlm", "task")
NEEDS_TEACHER_LOGITS = False


def loss(signals: Signals) -> Tensor:
    """Mean over tokens of 1 - cos(student, teacher). Scalar."""
    student, teacher = signals.student_hidden.float(), signals.teacher_hidden.float()
    return (1 - functional.cosine_similarity(student, teacher, dim=-1)).mean()
