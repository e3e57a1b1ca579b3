"""Parameter groups of the optimiser: weight decay on matrices, none on vectors."""

from typing import Any

from torch import nn

Group = dict[str, Any]


def parameter_groups(learner: nn.Module, weight_decay: float) -> list[Group]:
    """Return two groups: no decay on vectors (biases, layer norms), as in the training of BERT."""
    trained = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    return [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
