"""Cross entropy with the teacher's soft labels (TinyBERT, Jiao et al. 2020, equation 10; compact-transformers paper,
the output loss of equation 7).

It is `kl` plus the entropy of the teacher, so its gradient is that of `kl`. TinyBERT has the temperature 1; for others
it is multiplied by their square, as `kl` is and as TinyBERT is not.
"""

from torch import Tensor

from biosqueeze.objectives import Rows
from biosqueeze.objectives._soft_labels import distributions, scale, squared_difference

KINDS = ("mlm", "task")
READS = "rows"
UNIT = "rows"
NEEDS_TEACHER_LOGITS = True


def loss(rows: Rows) -> Tensor:
    """Sum over rows of the cross entropy at the temperature, times its square (Hinton et al. 2015). Scalar.

    Where each class is decided for itself it is the mean over classes; where a row is a score, the squared difference.

    Raises:
        ValueError: the teacher's answer is missing.
    """
    if not rows.kind.has_probabilities:
        return squared_difference(rows)
    student, teacher = distributions(rows)
    return -(teacher.exp() * student).sum() * scale(rows)
