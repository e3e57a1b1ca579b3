"""Cross entropy with the teacher's soft labels (TinyBERT, Jiao et al. 2020, equation 10; compact-transformers paper,
the output loss of equation 7).

Equal to `kl` plus the entropy of the teacher, so its gradient is that of `kl`. TinyBERT uses temperature 1; at other
temperatures this is multiplied by their square like `kl`, which TinyBERT does not do.
"""

from torch import Tensor

from biosqueeze.objectives import LogitRows
from biosqueeze.objectives._soft_labels import distributions, scale, squared_difference

KINDS = ("mlm", "task")
READS = "rows"
UNIT = "rows"
NEEDS_TEACHER_LOGITS = True


def loss(rows: LogitRows) -> Tensor:
    """Sum the cross entropy at the temperature over rows, times temperature squared (Hinton et al. 2015). Scalar.

    Multi-label: the mean over classes. A score: the squared difference.

    Raises:
        ValueError: the teacher's logits are missing.
    """
    if not rows.kind.has_probabilities:
        return squared_difference(rows)
    student, teacher = distributions(rows)
    return -(teacher.exp() * student).sum() * scale(rows)
