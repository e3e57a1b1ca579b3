"""Losses over a vocabulary, computed in chunks of rows; each chunk's gradient is taken at once.

All logits of a step (rows x vocabulary, in float32 for the softmax) would take most of a small student's memory. Here a
chunk of logits is freed as soon as its gradient is known. For the backward pass only the gradients of the hidden states
and of the head's parameters are kept, which are needed anyway. Unlike checkpointing, nothing is computed twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

CHUNK_ROWS = 1024
# A chunk of logits has at most 256 MB in float32: the vocabularies of multilingual models have 250,000 pieces.
_CHUNK_LOGITS = CHUNK_ROWS << 16

# Computes the sums of all terms, (terms,), over a slice of the rows, from the slice's hidden states.
SumTerms = Callable[[Tensor, slice], Tensor]


@dataclass(frozen=True)
class ChunkedTerms:
    """Loss terms that are summed over chunks of rows."""

    sums: SumTerms
    weights: Sequence[float]  # of the terms; only their ratios matter
    rows: int = CHUNK_ROWS


def chunk_rows(classes: int) -> int:
    """Return the number of rows in a chunk of logits: 1,024, and fewer of more than 65,536 classes."""
    return max(1, min(CHUNK_ROWS, _CHUNK_LOGITS // classes))


def sum_in_chunks(terms: ChunkedTerms, hidden: Tensor, parameters: Sequence[Parameter]) -> Tensor:
    """Sum each term over all rows, with a gradient: (terms,).

    Args:
        terms: the terms. The gradients that reach the result must be in the ratio of their weights.
        hidden: (rows, hidden size).
        parameters: the head's parameters that `terms.sums` reads.
    """
    if not torch.is_grad_enabled() or len(hidden) <= terms.rows:
        return terms.sums(hidden, slice(0, len(hidden)))
    total: Tensor = _SumInChunks.apply(terms, hidden, *parameters)  # type: ignore[no-untyped-call]
    return total


class _SumInChunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, terms: ChunkedTerms, hidden: Tensor, *parameters: Parameter) -> Tensor:
        weights = torch.tensor(terms.weights, device=hidden.device)
        total = torch.zeros_like(weights)
        hidden_grad, parameter_grads = torch.empty_like(hidden), [torch.zeros_like(p) for p in parameters]
        for start in range(0, len(hidden), terms.rows):
            part = slice(start, start + terms.rows)
            with torch.enable_grad():
                rows = hidden[part].detach().requires_grad_()
                sums = terms.sums(rows, part)
                grads = torch.autograd.grad((sums * weights).sum(), (rows, *parameters), allow_unused=True)
            total += sums.detach()
            hidden_grad[part] = grads[0]
            for parameter_grad, grad in zip(parameter_grads, grads[1:], strict=True):
                if grad is not None:
                    parameter_grad += grad
        ctx.weights = weights
        ctx.save_for_backward(hidden_grad, *parameter_grads)
        return total

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        scales = upstream[0] / ctx.weights  # (terms,)
        if not torch.allclose(scales, scales[:1].expand_as(scales), rtol=1e-4):
            raise ValueError("the gradients of chunked terms must be in the ratio of the weights given in forward")
        return None, *(scales[0] * tensor for tensor in ctx.saved_tensors)
