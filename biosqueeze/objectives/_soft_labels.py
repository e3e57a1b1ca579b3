"""Softened distributions of student and teacher over the same events, for the losses `kl` and `soft`.

The events are: the classes (single label); yes and no for each class (multi-label); or, with a `TopK` teacher, its most
probable classes and one event for all the others.
"""

import torch
from torch import Tensor
from torch.nn import functional

from biosqueeze.models.full_precision import full
from biosqueeze.objectives import LogitRows, TopK


def distributions(rows: LogitRows) -> tuple[Tensor, Tensor]:
    """Return log probabilities, student first: (rows, classes); multi: (rows, classes, 2); top k: (rows, k + 1).

    Raises:
        ValueError: the teacher's logits are missing, or are top-k for an output that is not one class of several.
    """
    if rows.teacher is None:
        raise ValueError("this loss needs the teacher's logits")
    student = _softened(rows.student, rows.temperature)
    if not isinstance(rows.teacher, TopK):
        teacher = _softened(rows.teacher, rows.temperature)
        return rows.kind.log_probabilities(student), rows.kind.log_probabilities(teacher)
    if not rows.kind.has_one_class:
        raise ValueError(f"top-k logits fit rows of one class of several, not of a {rows.kind.name}")
    return _grouped(student, rows.teacher.ids), _renormalized(rows.teacher)


def scale(rows: LogitRows) -> float:
    """Return the factor of a sum over events: temperature squared (Hinton et al. 2015), over the number of decisions.

    The square keeps the size of the gradients, which shrink with 1 / temperature squared.
    """
    return rows.temperature**2 / rows.kind.decisions(rows.student.shape[-1])


def squared_difference(rows: LogitRows) -> Tensor:
    """Sum the squared differences of two scores over rows, without a temperature. Scalar.

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
    return softened if temperature > 1 else softened.clamp(min=_lowest(logits))  # masked classes stay finite


def _grouped(logits: Tensor, ids: Tensor) -> Tensor:
    """Compute log probabilities of k classes, and of all others together: (rows, classes) -> (rows, k + 1).

    The others are summed directly: one minus the sum of the k would lose small probabilities to rounding.
    """
    others = logits.scatter(-1, ids, _lowest(logits)).logsumexp(dim=-1, keepdim=True)  # (rows, 1)
    return functional.log_softmax(torch.cat((logits.gather(-1, ids), others), dim=-1), dim=-1)


def _renormalized(teacher: TopK) -> Tensor:
    """Normalize log probabilities that were rounded to fp16 on disk, so that they sum to one: (rows, k + 1)."""
    stored = full(torch.cat((teacher.log_probabilities, teacher.rest.unsqueeze(-1)), dim=-1))
    return functional.log_softmax(stored.clamp(min=_lowest(stored)), dim=-1)


def _lowest(like: Tensor) -> float:
    """Return the lowest finite value of the tensor's type: zero times it is zero, not NaN."""
    return torch.finfo(like.dtype).min
