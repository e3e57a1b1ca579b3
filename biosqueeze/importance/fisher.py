"""The diagonal of the empirical Fisher information: the second-order change of the loss without a unit.

With a factor m = 1 on a unit's activation, the mean over examples of (dL/dm)^2: Kwon et al. 2022, "A Fast Post-Training
Pruning Framework for Transformers", equations 6 and 7.
"""

from transformers import PreTrainedModel

from biosqueeze.importance.calibration import Calibration
from biosqueeze.importance.gates import loss_gradients
from biosqueeze.importance.means import mean_over_examples
from biosqueeze.models.cuts.unit_scores import UnitScores

NEEDS = "loss"
SCORES = ("heads", "neurons", "hidden", "layers")


def score(model: PreTrainedModel, calibration: Calibration) -> UnitScores:
    """Return the mean of (dL/dm)^2."""
    gradients = loss_gradients(model, calibration)
    return mean_over_examples(({kind: g.square() for kind, g in batch.items()} for batch in gradients), calibration)
