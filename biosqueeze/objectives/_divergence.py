"""The divergence of attention distributions and its gradient, a few texts at a time.

The distributions (batch x heads x length x length) are by far the largest tensors of a distillation. Here those of as
many texts as fit into a processor's cache are computed, compared and dropped; their gradient is taken at once, and only
that of the vectors from which they are computed is kept.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from biosqueeze.models.full_precision import full

_SCORES_ON_CPU, _SCORES_ON_GPU = 2**19, 2**26  # of one model at a time: 2 MB and 256 MB in float32


class Sides(NamedTuple):
    """What attention scores are computed from."""

    left: Tensor  # (batch, heads, length, head size), such as queries
    right: Tensor  # (batch, heads, length, head size), such as keys
    bias: Tensor | None = None  # added to the scores, (batch or 1, heads, length, length)

    def full(self) -> "Sides":
        """Return the same in float32, unless the precision is that or higher."""
        return Sides(full(self.left), full(self.right), None if self.bias is None else full(self.bias))


def scores(sides: Sides) -> Tensor:
    """Compute dot products divided by the square root of the head size: for queries and keys, attention scores.

    The result is (batch, heads, length, length), in float32 at least. Autocast is disabled: it would round the product
    to bf16, and on a CPU also everything computed from it.
    """
    left, right, bias = sides.full()
    with torch.autocast(left.device.type, enabled=False):
        products = (left / math.sqrt(left.shape[-1])) @ right.mT
        return products if bias is None else products + bias


def distribution(scores: Tensor, allowed: Tensor) -> Tensor:
    """Return the softmax over the allowed keys; the scores of the others become the lowest number, in place.

    That is finite: a query without keys then has the same distribution in both models instead of NaN.

    Args:
        scores: (batch, heads, query, key).
        allowed: bool (batch, query, key).
    """
    if not allowed.all():
        scores = scores.masked_fill_(~allowed.unsqueeze(1), torch.finfo(scores.dtype).min)
    return torch.softmax(scores, dim=-1)


def divergence(first: Sides, second: Sides, allowed: Tensor) -> Tensor:
    """Sum D(first || second) of the softmax over allowed keys, over queries; mean over heads. Scalar.

    Masked keys have probability zero and no gradient. A query without any allowed key contributes zero.

    Args:
        first: vectors on the query side and on the key side; see `scores`.
        second: the same of the other model: equally many heads, any head size.
        allowed: bool (batch, query, key).
    """
    vectors = [
        # In full precision out here, so that gradients are rounded once, after they were added up.
        tensor if tensor is None else tensor.expand(len(allowed), -1, -1, -1).contiguous()
        for tensor in (*first.full(), *second.full())
    ]
    with torch.autocast(allowed.device.type, enabled=False):  # of the gradients too
        total: Tensor = _Divergence.apply(allowed, *vectors)  # type: ignore[no-untyped-call]
    return total / first.left.shape[1]


class _Divergence(torch.autograd.Function):
    """The divergence, summed over the heads."""

    @staticmethod
    def forward(ctx: Any, allowed: Tensor, *vectors: Any) -> Tensor:
        needed = ctx.needs_input_grad[1:]
        gradients = [
            torch.zeros_like(tensor) if tensor is not None and need else None
            for tensor, need in zip(vectors, needed, strict=True)
        ]
        total = allowed.new_zeros((), dtype=vectors[0].dtype)
        for part in _parts(vectors[0]):
            length = _length(allowed[part])
            leaves = [
                tensor if tensor is None else tensor.detach().requires_grad_(need)
                for tensor, need in zip(_views(vectors, part, length), needed, strict=True)
            ]
            value, of_leaves = _value_and_gradients(leaves, allowed[part, :length, :length])
            total += value
            for gradient, values in zip(_views(gradients, part, length), of_leaves, strict=True):
                if gradient is not None:
                    gradient.copy_(values)
        ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        return None, *(tensor if tensor is None else upstream[0] * tensor for tensor in ctx.saved_tensors)


def _length(allowed: Tensor) -> int:
    """Return the position after the last query or key of some texts, behind which all is padding; at least 1."""
    pairs = allowed.any(dim=0)
    used = (pairs.any(dim=0) | pairs.any(dim=1)).nonzero()
    return int(used[-1]) + 1 if len(used) else 1


def _views(vectors: Sequence[Any], texts: slice, length: int) -> list[Any]:
    """Return what the first positions of some texts have of the fields of two `Sides`."""
    return [
        tensor if tensor is None else tensor[texts, :, :length, : length if name == "bias" else None]
        for name, tensor in zip(Sides._fields * 2, vectors, strict=True)
    ]


def _parts(left: Tensor) -> Iterator[slice]:
    """Yield slices of the texts."""
    batch, heads, length, _ = left.shape
    budget = _SCORES_ON_CPU if left.device.type == "cpu" else _SCORES_ON_GPU
    size = max(1, budget // (heads * length * length))
    yield from (slice(start, start + size) for start in range(0, batch, size))


def _value_and_gradients(vectors: Sequence[Any], allowed: Tensor) -> tuple[Tensor, list[Tensor | None]]:
    """Return the divergence, and its gradient with respect to each vector that requires one.

    With scores s and t of the distributions p and q, of D(p || q) = sum_k p_k (log p_k - log q_k) the derivatives are
    p_k (log p_k - log q_k - D) by s_k, and q_k - p_k by t_k. From the scores, log p_k - log q_k is s_k - t_k, less the
    difference of log sum exp.
    """
    with torch.enable_grad():
        computed = scores(Sides(*vectors[:3])), scores(Sides(*vectors[3:]))
    s, t = (of_model.detach() for of_model in computed)
    p, q = distribution(s, allowed), distribution(t, allowed)
    log_of_sums = _log_of_sum(s, p) - _log_of_sum(t, q)
    terms = s.sub_(t).sub_(log_of_sums).mul_(p)
    of_scores = []
    if computed[0].requires_grad:
        of_scores.append(terms - p * terms.sum(dim=-1, keepdim=True))
    if computed[1].requires_grad:
        of_scores.append(q.sub_(p))
    trained = [of_model for of_model in computed if of_model.requires_grad]
    leaves = [tensor for tensor in vectors if tensor is not None and tensor.requires_grad]
    found = iter(torch.autograd.grad(trained, leaves, of_scores) if leaves else ())
    of_vectors = [next(found) if tensor is not None and tensor.requires_grad else None for tensor in vectors]
    return terms.sum(), of_vectors


def _log_of_sum(scores: Tensor, probabilities: Tensor) -> Tensor:
    """Return log sum exp of the scores, (..., 1), from the largest: the softmax has computed all exponentials."""
    return scores.amax(dim=-1, keepdim=True) - probabilities.amax(dim=-1, keepdim=True).log()
