"""The interface between the training loop and what is trained."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from biosqueeze.training.optimiser.parameter_groups import Group, parameter_groups
from biosqueeze.training.options import TrainingOptions


class Learner(nn.Module):
    """A model with its losses: the forward pass returns named loss terms, each a scalar mean over its units."""

    model: Any  # a PreTrainedModel, or a HeadedEncoder with the same interface
    weights: Mapping[str, float]  # of the loss terms, by name
    fast_layers = False  # whether `models.fast_training.fast_layers` may run the layers

    def forward(self, **batch: Tensor) -> dict[str, Tensor]:
        """Compute the unweighted loss terms of one padded batch, (batch, length) each; 0 for a term without units."""
        raise NotImplementedError

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, int]:
        """Count the units that each term is a mean over, in a batch on the CPU; 1 weighs all batches equally."""
        del batch
        return dict.fromkeys(self.weights, 1)

    def weighted_sum(self, terms: Mapping[str, Tensor]) -> Tensor:
        """Return the weighted sum of the loss terms."""
        return torch.stack([self.weights[name] * term for name, term in terms.items()]).sum()

    def parameter_groups(self, options: TrainingOptions) -> list[Group]:
        """Return the optimiser's parameter groups."""
        return parameter_groups(self, options.weight_decay)

    @property
    def reads_first_token(self) -> bool:
        """Whether the losses read the last hidden states of the first token alone, and `model` has BERT's layers."""
        return False

    def encoders(self) -> tuple[Any, ...]:
        """Return the transformers models that are trained."""
        return (self.model,)

    def modules_to_compile(self) -> tuple[nn.Module, ...]:
        """Return the modules that --compile compiles."""
        return tuple(encoder.base_model for encoder in self.encoders())
