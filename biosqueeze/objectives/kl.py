"""Output distillation: Kullback-Leibler divergence between softened distributions (compact-transformers, equation 2).

The paper writes D(student || teacher), see `reverse-kl`. Its published code computes D(teacher || student), like
DistilBERT (Sanh et al. 2019) and this file; its gradient is that of a cross entropy with soft labels.
"""

from torch import Tensor

from biosqueeze.objectives import LogitRows
from biosqueeze.objectives._soft_labels import distributions, scale, squared_difference

KINDS = ("mlm", "task")
READS = "rows"
UNIT = "rows"
NEEDS_TEACHER_LOGITS = True


def loss(rows: LogitRows) -> Tensor:
    """Sum D(teacher || student) at the temperature over rows, times temperature squared (Hinton et al. 2015). Scalar.

    Multi-label: the mean over classes. A score: the squared difference.

    Raises:
        ValueError: the teacher's logits are missing.
    """
    if not rows.kind.has_probabilities:
        return squared_difference(rows)
    student, teacher = distributions(rows)
    return (teacher.exp() * (teacher - student)).sum() * scale(rows)
