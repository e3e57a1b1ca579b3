"""The first-order change of the loss without a unit, as the mean over examples of its absolute value.

With a factor m = 1 on a unit's activation, |dL/dm| for each example: Molchanov et al. 2017 (equation 8) for neurons,
Michel et al. 2019 (section 4.1) for heads. Summed over the tokens of an example, dL/dm is the sum of weight times
gradient over the unit's output weights, which is torch-pruning's `GroupTaylorImportance` of that tensor; its dependency
graph does not cover gated FFNs and fused projections.
"""

from transformers import PreTrainedModel

from biosqueeze.importance.calibration import Calibration
from biosqueeze.importance.gates import loss_gradients
from biosqueeze.importance.means import mean_over_examples
from biosqueeze.models.cuts.unit_scores import UnitScores

NEEDS = "loss"
SCORES = ("heads", "neurons", "hidden", "layers")


def score(model: PreTrainedModel, calibration: Calibration) -> UnitScores:
    """Return the mean of |dL/dm|."""
    gradients = loss_gradients(model, calibration)
    return mean_over_examples(({kind: g.abs() for kind, g in batch.items()} for batch in gradients), calibration)
