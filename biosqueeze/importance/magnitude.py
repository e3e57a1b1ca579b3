"""The squared L2 norm of all weights of a unit: torch-pruning's group magnitude (Fang et al. 2023, DepGraph).

A group is all weights that are coupled with a unit; see `models.cuts.width`, and `models.cuts.sliced_pruning` for the
families that torch-pruning does not cover. Hidden dimensions are scored after the other cuts, when they are chosen, by
the weights that are left. A layer's score is the sum over its parameters.
"""

import torch
from torch import nn
from transformers import PreTrainedModel

from biosqueeze.importance.calibration import Calibration
from biosqueeze.models.cuts.unit_scores import UnitScores
from biosqueeze.models.cuts.width import open_pruning
from biosqueeze.models.families import family_of
from biosqueeze.models.layers import encoder_layers

NEEDS = "weights"
SCORES = ("heads", "neurons", "layers")


def score(model: PreTrainedModel, calibration: Calibration) -> UnitScores:  # noqa: ARG001 - weights alone
    """Return the squared norms."""
    norms = (nn.utils.get_total_norm(layer.parameters()) for layer in encoder_layers(model))
    layers = torch.stack([norm.detach().double().square() for norm in norms])
    if not family_of(model.config).supports_narrowing:
        return UnitScores(layers=layers)
    pruning = open_pruning(model)
    return UnitScores(
        heads=pruning.head_magnitudes().double(), neurons=pruning.neuron_magnitudes().double(), layers=layers
    )
