"""How much the loss rises without a layer: a forward pass of the calibration data for every layer.

The loss is the mean over examples. It scores layers alone.
"""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from biosqueeze.importance.calibration import Calibration
from biosqueeze.importance.gates import gated
from biosqueeze.importance.means import sum_over_batches
from biosqueeze.models.cuts.unit_scores import UnitScores
from biosqueeze.models.layers import encoder_layers

NEEDS = "loss"
SCORES = ("layers",)


@torch.no_grad()
def score(model: PreTrainedModel, calibration: Calibration) -> UnitScores:
    """Return the loss without each layer minus the loss with all."""
    count = len(encoder_layers(model))
    rises = ({"layers": _rises(model, calibration, number, count)} for number in range(len(calibration.batches)))
    return UnitScores(layers=sum_over_batches(rises, calibration)["layers"] / calibration.examples)


def _rises(model: PreTrainedModel, calibration: Calibration, number: int, count: int) -> Tensor:
    """Return how much the summed loss of one batch rises without each layer: (layers,), float64."""
    batch = calibration.batches[number]
    losses = [calibration.loss(model, batch).double()]
    for index in range(count):
        with gated(model, len(batch["input_ids"])) as gates:
            gates.layers[index] = 0
            losses.append(calibration.loss(model, batch).double())
    return torch.stack(losses[1:]) - losses[0]
