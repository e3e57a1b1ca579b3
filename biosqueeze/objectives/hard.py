"""Hard labels: the fine-tuning loss, on the rows that have a label."""

from torch import Tensor

from biosqueeze.models.full_precision import full
from biosqueeze.objectives import LogitRows, labelled

KINDS = ("task",)
READS = "rows"
UNIT = "labelled"
NEEDS_TEACHER_LOGITS = False


def loss(rows: LogitRows) -> Tensor:
    """Sum over the labelled rows; zero (with a gradient) without any. Scalar.

    A row adds the cross entropy with its class; multi-label: the mean of the binary cross entropies over classes; a
    score: the squared difference.
    """
    known = labelled(rows.labels)
    return rows.kind.label_loss(full(rows.student[known]), rows.labels[known])
