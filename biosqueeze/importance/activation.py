"""The mean size of activations on calibration text.

Neurons: the mean of |a| (Muralidharan et al. 2024, "Minitron", section 2.2). Heads: the mean L2 norm of what a head
gives to the output layer. Hidden dimensions: the mean of |h| after every layer. Layers: the mean of |f(x)| / |x + f(x)|
for a layer that turns x into x + f(x) (Samragh et al. 2023, "Weight subcloning").
"""

from torch import Tensor
from transformers import PreTrainedModel

from biosqueeze.importance.activations import LayerActivations, layer_activations
from biosqueeze.importance.calibration import Calibration
from biosqueeze.importance.means import stacked, sum_over_batches
from biosqueeze.models.cuts.unit_scores import UnitScores

NEEDS = "text"
SCORES = ("heads", "neurons", "hidden", "layers")


def score(model: PreTrainedModel, calibration: Calibration) -> UnitScores:
    """Return the means over tokens."""
    sums = (stacked([_sizes(layer) for layer in batch]) for batch in layer_activations(model, calibration))
    means = {kind: value / calibration.tokens for kind, value in sum_over_batches(sums, calibration).items()}
    return UnitScores(**means | {"hidden": means["hidden"].mean(0)})


def _sizes(layer: LayerActivations) -> dict[str, Tensor]:
    sizes = {
        "layers": ((layer.output - layer.input).norm(dim=1) / layer.output.norm(dim=1)).sum(),
        "hidden": layer.output.abs().sum(0),
    }
    if layer.heads is not None and layer.neurons is not None:
        sizes |= {"heads": layer.heads.norm(dim=2).sum(0), "neurons": layer.neurons.abs().sum(0)}
    return sizes
