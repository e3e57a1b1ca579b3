"""Losses over a vocabulary without its logits: a few rows at a time, each chunk's gradient taken at once.

The logits of a step (rows x vocabulary, in float32 for a softmax) would be most of a small student's memory. Here a
chunk of them lives until its gradient is known, and what is kept for the backward pass is the gradient of the hidden
states and of the head's parameters, which is needed anyway. Unlike checkpointing, nothing is computed twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

CHUNK_ROWS = 1024

# The sums of all terms, (terms,), of some rows, from their hidden states.
SumsOf = Callable[[Tensor, slice], Tensor]


@dataclass(frozen=True)
class Work:
    """What is summed over which rows."""

    sums: SumsOf
    weights: Sequence[float]  # of the terms; only their ratios matter
    rows: int = CHUNK_ROWS


def summed(work: Work, hidden: Tensor, parameters: Sequence[Parameter]) -> Tensor:
    """The sum of each term over all rows, with a gradient: (terms,).

    Args:
        work: what is summed. The terms' gradients must reach the result in the ratio of its weights.
        hidden: (rows, hidden size).
        parameters: those of the head, which `work.sums` reads.
    """
    if not torch.is_grad_enabled() or len(hidden) <= work.rows:
        return work.sums(hidden, slice(0, len(hidden)))
    total: Tensor = _Summed.apply(work, hidden, *parameters)  # type: ignore[no-untyped-call]
    return total


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, work: Work, hidden: Tensor, *parameters: Parameter) -> Tensor:
        weights = torch.tensor(work.weights, device=hidden.device)
        total = torch.zeros_like(weights)
        gradient, others = torch.empty_like(hidden), [torch.zeros_like(p) for p in parameters]
        for start in range(0, len(hidden), work.rows):
            part = slice(start, start + work.rows)
            with torch.enable_grad():
                rows = hidden[part].detach().requires_grad_()
                sums = work.sums(rows, part)
                grads = torch.autograd.grad((sums * weights).sum(), (rows, *parameters), allow_unused=True)
            total += sums.detach()
            gradient[part] = grads[0]
            for other, grad in zip(others, grads[1:], strict=True):
                if grad is not None:
                    other += grad
        ctx.weights = weights
        ctx.save_for_backward(gradient, *others)
        return total

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        scales = upstream[0] / ctx.weights  # (terms,)
        if not torch.allclose(scales, scales[:1].expand_as(scales), rtol=1e-4):
            raise ValueError("terms that are summed together must be weighed as was said when they were")
        return None, *(scales[0] * tensor for tensor in ctx.saved_tensors)
