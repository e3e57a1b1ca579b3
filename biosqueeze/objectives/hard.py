"""Hard labels: what fine-tuning learns from, on the rows that have a label."""

from torch import Tensor

from biosqueeze.objectives import Rows, full, labelled

KINDS = ("task",)
READS = "rows"
UNIT = "labelled"
NEEDS_TEACHER_LOGITS = False


def loss(rows: Rows) -> Tensor:
    """Sum over the labelled rows; zero (with a gradient) where there are none. Scalar.

    The cross entropy with the class; where each class is decided for itself, the mean of its binary cross entropies
    over classes; of a score, the squared difference.
    """
    known = labelled(rows.labels)
    return rows.kind.label_loss(full(rows.student[known]), rows.labels[known])
