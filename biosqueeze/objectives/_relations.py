"""Relations between tokens, per head: scaled dot products, and the divergence between the softmax of two models.

All results are sums over texts, so a batch may be split along its first dimension to save memory.
"""

from torch import Tensor

from biosqueeze.models.full_precision import full
from biosqueeze.objectives import LayerPair, states_of
from biosqueeze.objectives._divergence import Sides, distribution, divergence, scores


def attention_sides(pair: LayerPair) -> tuple[Sides, Sides]:
    """Return what `scores` computes the attention scores of student and teacher from."""
    queries, keys = states_of(pair, "query"), states_of(pair, "key")
    return Sides(queries[0], keys[0], pair.student.bias), Sides(queries[1], keys[1], pair.teacher.bias)


def attention_divergence(pair: LayerPair) -> Tensor:
    """Sum D(teacher || student) of the attention distributions over queries; mean over heads. Scalar."""
    student, teacher = attention_sides(pair)
    return divergence(teacher, student, pair.allowed)


def attention_maps(pair: LayerPair) -> tuple[Tensor, Tensor]:
    """Compute the attention distributions of student and teacher, (batch, heads, query, key) each."""
    student, teacher = (distribution(scores(sides), pair.allowed) for sides in attention_sides(pair))
    return student, teacher


def relation_divergence(student: Tensor, teacher: Tensor, allowed: Tensor) -> Tensor:
    """Sum D(teacher || student) of the similarities within each head: (batch, heads, length, head size). Scalar."""
    student, teacher = full(student), full(teacher)  # once for both uses, so that gradients add up unrounded
    return divergence(Sides(teacher, teacher), Sides(student, student), allowed)
