"""How tokens look at each other, per head: scaled dot products, and the divergence between the softmax of two models'.

Everything is a sum over texts, so a batch may be cut along its first dimension, where memory is short.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from biosqueeze.objectives import Pair, full, states_of


def scores(left: Tensor, right: Tensor) -> Tensor:
    """Dot products over the square root of the head size; of queries and keys, what attention takes the softmax of.

    Two of (batch, heads, length, head size) -> (batch, heads, length, length), in float32 at least: autocast, in which
    the engine computes all losses, would round the product to bf16, and on a CPU all that is made of it.
    """
    with torch.autocast(left.device.type, enabled=False):
        return (full(left) / math.sqrt(left.shape[-1])) @ full(right).mT


def attention_divergence(pair: Pair) -> Tensor:
    """Sum over queries of D(teacher || student) of what each attends to, the mean over heads. Scalar."""
    student, teacher = zip(states_of(pair, "query"), states_of(pair, "key"), strict=True)
    return divergence(student, teacher, pair.allowed)


def relation_divergence(student: Tensor, teacher: Tensor, allowed: Tensor) -> Tensor:
    """`divergence` of how alike a head's vectors are to each other: (batch, heads, length, head size). Scalar."""
    student, teacher = full(student), full(teacher)  # before they part, so that their gradients meet unrounded
    return divergence((student, student), (teacher, teacher), allowed)


def divergence(student: tuple[Tensor, Tensor], teacher: tuple[Tensor, Tensor], allowed: Tensor) -> Tensor:
    """Sum over queries of D(teacher || student) of the softmax over allowed keys, the mean over heads. Scalar.

    What is not allowed has the probability zero and no gradient, and a query without any key adds nothing.

    Args:
        student: the vectors on the query's and on the key's side, (batch, heads, length, head size).
        teacher: the same of the teacher: as many heads, of any size.
        allowed: bool (batch, query, key).
    """
    blocked = ~allowed.unsqueeze(1)  # (batch, 1, query, key)
    mine, theirs = _log_softmax(scores(*student), blocked), _log_softmax(scores(*teacher), blocked)
    return (theirs.exp() * (theirs - mine)).sum() / mine.shape[1]


def _log_softmax(scores: Tensor, blocked: Tensor) -> Tensor:
    # Filled with something finite: a query without keys gets some distribution, the same in both models, and not NaN.
    return functional.log_softmax(scores.masked_fill_(blocked, torch.finfo(scores.dtype).min), dim=-1)
