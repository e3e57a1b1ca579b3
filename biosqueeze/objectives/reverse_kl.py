"""Output distillation in the printed direction: D(student || teacher) between softened distributions
(compact-transformers, equation 2).

It is not the default: the paper's published code computes `kl`, D(teacher || student), whose gradient is that of a
cross entropy with soft labels. The reverse is small for a student that predicts one of the teacher's likely tokens
alone.
"""

from torch import Tensor

from biosqueeze.objectives import LogitRows
from biosqueeze.objectives._soft_labels import distributions, scale, squared_difference

KINDS = ("mlm", "task")
READS = "rows"
UNIT = "rows"
NEEDS_TEACHER_LOGITS = True
_BOUND = 1e30


def loss(rows: LogitRows) -> Tensor:
    """Sum D(student || teacher) at the temperature over rows, times temperature squared. Scalar.

    Multi-label: the mean over classes. A score: the squared difference.

    Raises:
        ValueError: the teacher's logits are missing.
    """
    if not rows.kind.has_probabilities:
        return squared_difference(rows)
    student, teacher = distributions(rows)
    difference = (student - teacher).clamp(-_BOUND, _BOUND)  # impossible classes: zero times infinity would be NaN
    return (student.exp() * difference).sum() * scale(rows)
