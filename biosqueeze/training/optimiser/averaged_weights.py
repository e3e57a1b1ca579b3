"""A moving average of the weights over a training, which scores higher on dev than the weights of any step."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

_SPAN = 0.1  # about this share of the steps so far is averaged


class AveragedWeights:
    """The moving average of a model's trained weights; its span grows with the number of steps.

    Karras et al. 2024 (Analyzing and improving the training dynamics of diffusion models, equation 2): after step t the
    average keeps (1 - 1 / t) ** (gamma + 1) of itself, here with gamma + 1 = 10.
    """

    def __init__(self, model: nn.Module) -> None:
        """Begin with the current weights."""
        self.weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.average = [weight.detach().clone() for weight in self.weights]
        self.steps = 0

    @torch.no_grad()
    def update(self) -> None:
        """Add the weights after a step."""
        self.steps += 1
        kept = (1 - 1 / self.steps) ** (1 / _SPAN)
        torch._foreach_lerp_(self.average, [weight.detach() for weight in self.weights], 1 - kept)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the model the averaged weights inside the block."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for weight, average in zip(self.weights, self.average, strict=True):
            current = weight.detach().clone()
            weight.copy_(average)
            average.copy_(current)

    def state_dict(self) -> dict[str, Any]:
        """Return the average for a saved training state."""
        return {"steps": self.steps, "average": self.average}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved average."""
        self.steps = state["steps"]
        for average, saved in zip(self.average, state["average"], strict=True):
            average.copy_(saved)
