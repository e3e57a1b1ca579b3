"""The losses of distillation: one file each, a pure function of what student and teacher said about the same tokens.

A file NAME.py is the loss called NAME. It has `KINDS` (the kinds of distillation that it fits: "mlm", "task"),
`NEEDS_TEACHER_LOGITS`, and `loss(signals) -> Tensor` (a scalar, a mean over rows). Padding is cut away before any loss
sees a tensor, so a loss needs no mask.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Signals:
    """What one forward pass of student and teacher gives to the losses.

    Rows are the masked positions in task-agnostic distillation, and all real tokens in task-specific distillation;
    tokens are all real tokens. There is no padding in either.
    """

    labels: Tensor  # (rows,) the true token or tag, -100 where it is not known
    student_logits: Tensor  # (rows, classes)
    teacher_logits: Tensor | None  # (rows, classes); None where the teacher has no such head
    student_hidden: Tensor  # (tokens, hidden) last layer, in the teacher's width
    teacher_hidden: Tensor  # (tokens, hidden) last layer
    temperature: float
