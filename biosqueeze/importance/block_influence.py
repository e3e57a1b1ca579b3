"""How much a layer changes the hidden states: the mean over tokens of 1 - cosine between its input and its output.

Men et al. 2024, "ShortGPT", equation 1. It scores layers alone.
"""

from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from biosqueeze.importance.activations import LayerActivations, layer_activations
from biosqueeze.importance.calibration import Calibration
from biosqueeze.importance.means import stacked, sum_over_batches
from biosqueeze.models.cuts.unit_scores import UnitScores

NEEDS = "text"
SCORES = ("layers",)


def score(model: PreTrainedModel, calibration: Calibration) -> UnitScores:
    """Return the means over tokens."""
    sums = (stacked([{"layers": _distance(x)} for x in batch]) for batch in layer_activations(model, calibration))
    return UnitScores(layers=sum_over_batches(sums, calibration)["layers"] / calibration.tokens)


def _distance(layer: LayerActivations) -> Tensor:
    return (1 - functional.cosine_similarity(layer.input, layer.output, dim=1)).sum()
