"""What the loop trains."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn


class Learner(nn.Module):
    """What is trained: a model whose forward pass gives named loss terms, each a scalar mean over its units."""

    model: Any  # a PreTrainedModel, or a HeadedEncoder that is used like one
    weights: Mapping[str, float]

    def forward(self, **batch: Tensor) -> dict[str, Tensor]:
        """The loss terms for one padded batch, (batch, length) each, before weighting; 0 where a term has no unit."""
        raise NotImplementedError

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, int]:
        """How many units each term is a mean over in this batch, which lies on the CPU; 1: all batches weigh alike."""
        del batch
        return dict.fromkeys(self.weights, 1)

    def compiled(self) -> tuple[nn.Module, ...]:
        """The modules that --compile compiles: those that are called, and take the time."""
        return (self.model.base_model,)
