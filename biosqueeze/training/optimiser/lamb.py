"""LAMB: Adam whose update of each matrix is scaled to the matrix's own norm, for very large batches."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from biosqueeze.training.optimiser.parameter_groups import Group


class Lamb(Optimizer):
    """LAMB (You et al. 2020, "Large batch optimization for deep learning: training BERT in 76 minutes", algorithm 2).

    With Adam's update u, from bias-corrected means of the gradient and of its square, and the weights w of one tensor:

        r = u + weight_decay * w;  w <- w - lr * (|w| / |r|) * r

    The ratio of norms is 1 where either norm is 0, and for vectors (biases, layer norms), which the authors' code
    exempts from it as from weight decay. It is 1 for matrices of a kind of biases too, whose attribute `is_bias` is
    true: they begin at zero, and steps in proportion to their norm would keep them there. PyTorch has no LAMB; this one
    computes all tensors of a group at once.
    """

    def __init__(self, groups: Iterable[Group], lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(list(groups), {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                self._update(weights, group)
        return loss

    def _update(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        updates = self._adam(weights, group)
        if group["weight_decay"]:
            torch._foreach_add_(updates, weights, alpha=group["weight_decay"])
        matrices = [number for number, weight in enumerate(weights) if _has_ratio(weight)]
        if matrices:
            scaled = [updates[number] for number in matrices]
            torch._foreach_mul_(scaled, _ratios([weights[number] for number in matrices], scaled))
        torch._foreach_add_(weights, updates, alpha=-group["lr"])

    def _adam(self, weights: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        """Advance the means, and return Adam's update of each tensor without the learning rate."""
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        states = [self._state_of(weight) for weight in weights]
        means, squares = [state["mean"] for state in states], [state["square"] for state in states]
        first, second = group["betas"]
        torch._foreach_lerp_(means, gradients, 1 - first)
        torch._foreach_mul_(squares, second)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - second)
        for state in states:
            state["step"] += 1
        steps = [float(state["step"]) for state in states]
        updates = torch._foreach_div(means, [1 - first**step for step in steps])
        roots = torch._foreach_div(squares, [1 - second**step for step in steps])
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, group["eps"])
        torch._foreach_div_(updates, roots)
        return list(updates)

    def _state_of(self, weight: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[weight]
        if not state:
            # A tensor, as in torch's optimisers: it is saved and loaded with the others.
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["mean"], state["square"] = torch.zeros_like(weight), torch.zeros_like(weight)
        return state


def _has_ratio(weight: Tensor) -> bool:
    return weight.ndim > 1 and not getattr(weight, "is_bias", False)


def _ratios(weights: list[Tensor], updates: list[Tensor]) -> list[Tensor]:
    """Return the ratio of the norms of each tensor and its update, a scalar each; 1 where one of them is 0."""
    lengths = zip(torch._foreach_norm(weights), torch._foreach_norm(updates), strict=True)
    return [torch.where((weight > 0) & (update > 0), weight / update, 1.0) for weight, update in lengths]
