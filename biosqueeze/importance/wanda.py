"""Weights times the L2 norm of what they read, after Wanda (Sun et al. 2024, equation 1).

Wanda scores single weights by |W_ij| * ||X_j||_2 over all tokens of the calibration text. Here the scores are summed
over the weights of a unit: the columns of a neuron or a head in the output layer that reads them, and of a hidden
dimension in the projections that read it. A layer's score is the sum over its heads and neurons.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from biosqueeze.importance.activations import LayerActivations, layer_activations
from biosqueeze.importance.calibration import Calibration
from biosqueeze.importance.means import stacked, sum_over_batches
from biosqueeze.models.cuts.head_rotation import present
from biosqueeze.models.cuts.unit_scores import UnitScores
from biosqueeze.models.families import Family, family_of
from biosqueeze.models.layers import encoder_layers

NEEDS = "text"
SCORES = ("heads", "neurons", "hidden", "layers")
NARROWABLE_ONLY = True


def score(model: PreTrainedModel, calibration: Calibration) -> UnitScores:
    """Return the summed products; none for a family that cannot be narrowed."""
    family = family_of(model.config)
    if not family.supports_narrowing:
        return UnitScores()
    sums = (stacked([_squares(layer) for layer in batch]) for batch in layer_activations(model, calibration))
    norms = {kind: value.sqrt() for kind, value in sum_over_batches(sums, calibration).items()}
    weights = stacked([_weights(layer, family) for layer in encoder_layers(model)])
    heads = (weights["heads"].view_as(norms["heads"]) * norms["heads"]).sum(2)  # (layers, heads)
    neurons = weights["neurons"] * norms["neurons"]
    hidden = (weights["attention_input"] * norms["attention_input"] + weights["ffn_input"] * norms["ffn_input"]).sum(0)
    return UnitScores(heads=heads, neurons=neurons, hidden=hidden, layers=heads.sum(1) + neurons.sum(1))


def _squares(layer: LayerActivations) -> dict[str, Tensor]:
    """Sum the squares of what the columns read over tokens: (heads, size), (neurons,), and twice (hidden,)."""
    kinds = ("heads", "neurons", "attention_input", "ffn_input")
    return {kind: states.square().sum(0) for kind in kinds if (states := getattr(layer, kind)) is not None}


@torch.no_grad()
def _weights(layer: Any, family: Family) -> dict[str, Tensor]:
    """Sum the sizes of the weights of each column, float64: (heads x size,), (neurons,), and twice (hidden,)."""
    paths = {
        "heads": (family.attention_output,),
        "neurons": (family.ffn_output,),
        "attention_input": present(layer, dict.fromkeys((family.query, family.key, family.value))),
        "ffn_input": present(layer, dict.fromkeys((family.ffn_input, family.ffn_gate))),
    }
    columns = {
        kind: [layer.get_submodule(path).weight.double().abs().sum(0) for path in names]
        for kind, names in paths.items()
    }
    return {kind: torch.stack(sums).sum(0) for kind, sums in columns.items()}
