"""Choose layers by importance, greedily: remove the least important one, score the others again, and so on."""

from transformers import PreTrainedModel

from biosqueeze.errors import UsageError
from biosqueeze.importance import Importance
from biosqueeze.importance.calibration import Calibration
from biosqueeze.models.depth import keep_layers
from biosqueeze.models.unit_scores import UnitScores


def choose_layers(
    model: PreTrainedModel, keep: int, importance: Importance, calibration: Calibration, scores: UnitScores
) -> tuple[int, ...]:
    """Return the layers to keep, ascending.

    Args:
        model: whose layers do not share their weights.
        keep: number of layers.
        importance: which scores layers.
        calibration: for the importance.
        scores: of the whole model.

    Raises:
        UsageError: the importance does not score the layers of this family.
    """
    kept = list(range(model.config.num_hidden_layers))
    while len(kept) > keep:
        if scores.layers is None:
            raise UsageError(f"this importance scores no layers of a {model.config.model_type}; give another one")
        del kept[int(scores.layers.argmin())]
        if len(kept) > keep:
            scores = importance.score(keep_layers(model, kept)[0], calibration)
    return tuple(kept)
