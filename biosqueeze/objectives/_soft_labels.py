"""What `kl` and `soft` share: the distributions of student and teacher over the same events, at the temperature.

An event is a class, where one of many is true; yes or no of each class, where each is decided for itself; and, where
only the teacher's likeliest classes are known, one of those or any of the others.
"""

import torch
from torch import Tensor
from torch.nn import functional

from biosqueeze.objectives import Rows, TopK, full


def distributions(rows: Rows) -> tuple[Tensor, Tensor]:
    """Logarithms of probabilities, student first: (rows, classes); multi: (rows, classes, 2); top k: (rows, k + 1).

    Raises:
        ValueError: there are no teacher's logits, or top ones for rows that have no likeliest class.
    """
    if rows.teacher is None:
        raise ValueError("this loss needs the teacher's logits")
    student = _softened(rows.student, rows.temperature)
    if not isinstance(rows.teacher, TopK):
        teacher = _softened(rows.teacher, rows.temperature)
        return rows.kind.log_probabilities(student), rows.kind.log_probabilities(teacher)
    if not rows.kind.has_one_class:
        raise ValueError(f"the likeliest classes are those of one class per row, not of a {rows.kind.name}")
    return _grouped(student, rows.teacher.ids), _renormalized(rows.teacher)


def scale(rows: Rows) -> float:
    """What a sum over events is multiplied by: the temperature's square (Hinton et al. 2015), the mean over decisions.

    The square keeps the size of gradients, which fall with it.
    """
    return rows.temperature**2 / rows.kind.decisions(rows.student.shape[-1])


def squared_difference(rows: Rows) -> Tensor:
    """Of two scores, to which no temperature applies. Scalar.

    Raises:
        ValueError: the teacher's scores are missing.
    """
    if not isinstance(rows.teacher, Tensor):
        raise ValueError("this loss needs the teacher's scores")
    return functional.mse_loss(full(rows.student), full(rows.teacher), reduction="sum")


def _softened(logits: Tensor, temperature: float) -> Tensor:
    logits = full(logits)
    if temperature == 1:
        return logits
    softened = logits / temperature
    return softened if temperature > 1 else softened.clamp(min=_lowest(logits))  # impossible classes stay finite


def _grouped(logits: Tensor, ids: Tensor) -> Tensor:
    """Log probabilities of some classes, (rows, k), and of all others together: (rows, classes) -> (rows, k + 1).

    The others are added up themselves: one minus the sum of the rest would lose what is small.
    """
    others = logits.scatter(-1, ids, _lowest(logits)).logsumexp(dim=-1, keepdim=True)  # (rows, 1)
    return functional.log_softmax(torch.cat((logits.gather(-1, ids), others), dim=-1), dim=-1)


def _renormalized(teacher: TopK) -> Tensor:
    """Log probabilities that add up to one in spite of their rounding on disk: (rows, k + 1)."""
    kept = full(torch.cat((teacher.log_probabilities, teacher.rest.unsqueeze(-1)), dim=-1))
    return functional.log_softmax(kept.clamp(min=_lowest(kept)), dim=-1)


def _lowest(like: Tensor) -> float:
    """Finite, so that zero times it is zero."""
    return torch.finfo(like.dtype).min
