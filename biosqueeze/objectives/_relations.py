"""Relations between tokens, per head: scaled dot products, and the divergence between the softmax of two models.

All results are sums over texts, so a batch may be split along its first dimension to save memory.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from biosqueeze.objectives import LayerPair, full, states_of

# Two tensors (batch, heads, length, head size), and what is added to their scores, (batch, heads, length, length).
Sides = tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor | None]


def scores(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute dot products divided by the square root of the head size: for queries and keys, attention scores.

    Two tensors (batch, heads, length, head size) -> (batch, heads, length, length), in float32 at least. Autocast is
    disabled: it would round the product to bf16, and on a CPU also everything computed from it.
    """
    with torch.autocast(left.device.type, enabled=False):
        products = (full(left) / math.sqrt(left.shape[-1])) @ full(right).mT
        return products if bias is None else products + full(bias)


def attention_sides(pair: LayerPair) -> tuple[Sides, Sides]:
    """Return what `scores` makes the attention scores of student and teacher from."""
    queries, keys = states_of(pair, "query"), states_of(pair, "key")
    return (queries[0], keys[0], pair.student.bias), (queries[1], keys[1], pair.teacher.bias)


def attention_divergence(pair: LayerPair) -> Tensor:
    """Sum D(teacher || student) of the attention distributions over queries; mean over heads. Scalar."""
    return divergence(*attention_sides(pair), pair.allowed)


def attention_maps(pair: LayerPair) -> tuple[Tensor, Tensor]:
    """Compute the attention distributions of student and teacher, (batch, heads, query, key) each."""
    blocked = ~pair.allowed.unsqueeze(1)  # (batch, 1, query, key)
    student, teacher = (_log_softmax(scores(*sides), blocked).exp() for sides in attention_sides(pair))
    return student, teacher


def relation_divergence(student: Tensor, teacher: Tensor, allowed: Tensor) -> Tensor:
    """Compute `divergence` of the similarities within each head: (batch, heads, length, head size). Scalar."""
    student, teacher = full(student), full(teacher)  # once for both uses, so that gradients add up unrounded
    return divergence((student, student), (teacher, teacher), allowed)


def divergence(student: Sides, teacher: Sides, allowed: Tensor) -> Tensor:
    """Sum D(teacher || student) of the softmax over allowed keys, over queries; mean over heads. Scalar.

    Masked keys have probability zero and no gradient. A query without any allowed key contributes zero.

    Args:
        student: vectors on the query side and on the key side, (batch, heads, length, head size) each; see `scores`.
        teacher: the same for the teacher: equally many heads, any head size.
        allowed: bool (batch, query, key).
    """
    blocked = ~allowed.unsqueeze(1)  # (batch, 1, query, key)
    student_log, teacher_log = _log_softmax(scores(*student), blocked), _log_softmax(scores(*teacher), blocked)
    return (teacher_log.exp() * (teacher_log - student_log)).sum() / student_log.shape[1]


def _log_softmax(scores: Tensor, blocked: Tensor) -> Tensor:
    # Fill with a finite value: a query without keys then gets the same distribution in both models instead of NaN.
    return functional.log_softmax(scores.masked_fill_(blocked, torch.finfo(scores.dtype).min), dim=-1)
