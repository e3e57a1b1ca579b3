"""Output distillation: Kullback-Leibler divergence between softened distributions (compact-transformers, equation 2).

The paper writes D(student || teacher); its published code, like DistilBERT's (Sanh et al. 2019), computes what is meant
here: D(teacher || student), whose gradient is that of a cross entropy with soft labels.
"""

from torch import Tensor

from biosqueeze.objectives import Rows
from biosqueeze.objectives._soft_labels import distributions, scale, squared_difference

KINDS = ("mlm", "task")
READS = "rows"
UNIT = "rows"
NEEDS_TEACHER_LOGITS = True


def loss(rows: Rows) -> Tensor:
    """Sum over rows of D(teacher || student) at the temperature, times its square (Hinton et al. 2015). Scalar.

    Where each class is decided for itself it is the mean over classes; where a row is a score, the squared difference.

    Raises:
        ValueError: the teacher's answer is missing.
    """
    if not rows.kind.has_probabilities:
        return squared_difference(rows)
    student, teacher = distributions(rows)
    return (teacher.exp() * (teacher - student)).sum() * scale(rows)
