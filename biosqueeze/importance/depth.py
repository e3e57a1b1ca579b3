"""Choose layers greedily: remove one, look at the others again, and so on.

By an importance, or by what is lost after repair. What a layer does says little about what is lost when the rest is
repaired: the last layers of a tagger change its hidden states most, and are the easiest to make up for.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from biosqueeze.data.feature_keys import ATTENTION_MASK
from biosqueeze.errors import UsageError
from biosqueeze.importance import Importance
from biosqueeze.importance.calibration import Batch, Calibration
from biosqueeze.models.cuts.depth import keep_layers
from biosqueeze.models.cuts.layer_gaps import gap_errors
from biosqueeze.models.cuts.repair import Targets, repair_depth
from biosqueeze.models.cuts.streams import CalibrationText
from biosqueeze.models.cuts.unit_scores import UnitScores
from biosqueeze.models.families import family_of
from biosqueeze.models.layers import encoder_layers
from biosqueeze.progress import collect_warnings, track

_TRIED = 3
"""Layers whose removal is tried and measured, of every number of layers."""
_TOKENS = 8_192
"""That removals are repaired on, and as many others that they are compared on."""


def choose_layers(
    model: PreTrainedModel, keep: int, importance: Importance, calibration: Calibration, scores: UnitScores
) -> tuple[tuple[int, ...], Tensor]:
    """Choose layers: each time the least important one is removed, and the others are scored anew.

    Args:
        model: whose layers do not share their weights.
        keep: number of layers.
        importance: which scores layers.
        calibration: for the importance.
        scores: of the whole model.

    Returns:
        the layers to keep, ascending, and the score of each layer when it was last compared, (layers,).

    Raises:
        UsageError: the importance does not score the layers of this family.
    """
    kept = list(range(model.config.num_hidden_layers))
    last = torch.full((len(kept),), torch.nan, dtype=torch.float64)
    while len(kept) > keep:
        if scores.layers is None:
            raise UsageError(f"this importance scores no layers of a {model.config.model_type}; give another one")
        last[kept] = scores.layers.double()
        del kept[int(scores.layers.argmin())]
        if len(kept) > keep:
            scores = importance.score(_trial(model, kept), calibration)
    return tuple(kept), last


def _trial(model: PreTrainedModel, layers: Sequence[int]) -> PreTrainedModel:
    """Return a model with some layers that is not written, so that its shape needs no warnings."""
    with collect_warnings():
        return keep_layers(model, layers)[0]


def choose_layers_after_repair(
    model: PreTrainedModel, keep: int, calibration: Calibration
) -> tuple[tuple[int, ...], Tensor]:
    """Choose layers: each time the one is removed without which the repaired rest loses least.

    Tried are the layers that the one before can make up for most, see `gap_errors`, and the first where few are left.
    What is lost is measured on text that the repair has not seen: on its own text, a repair of several gaps hides it.

    Args:
        model: whose layers do not share their weights.
        keep: number of layers.
        calibration: with or without labels.

    Returns:
        the layers to keep, ascending, and what was lost by an example without each layer when it was last tried,
        (layers,), NaN for those that were not tried.
    """
    fitted, held_out = calibration.samples(_TOKENS)
    text, loss = CalibrationText(fitted.batches, fitted.run), _LossAfterCut(model, held_out)
    targets, errors, same = Targets(model, text, serves_again=True), list[float](), 0
    kept, current = tuple(range(model.config.num_hidden_layers)), model
    lost = torch.full((len(kept),), torch.nan, dtype=torch.float64)
    with track("choose layers", sum(min(_TRIED, count) for count in range(keep + 1, len(kept) + 1))) as bar:
        while len(kept) > keep:
            errors[same:] = gap_errors(current, text, first=same)
            easiest = sorted(range(1, len(kept)), key=lambda index: errors[index - 1])
            tried = []
            for index in [*easiest, 0][:_TRIED]:
                layers = kept[:index] + kept[index + 1 :]
                # What lies before the layer that is fitted to the gap has the repair of earlier gaps.
                shallow, repaired = _trial(model, layers), max(0, index - 1)
                _copy_layers(current, shallow, repaired)
                repair_depth(shallow, targets, layers, first=repaired, shows_progress=False)
                lost[kept[index]] = loss.of(shallow) / max(1, held_out.examples)
                tried.append((lost[kept[index]].item(), layers, shallow, max(0, repaired - 1)))
                bar.advance()
            _, kept, current, same = min(tried, key=lambda each: each[0])
    return kept, lost


def _copy_layers(model: PreTrainedModel, other: PreTrainedModel, count: int) -> None:
    """Copy the weights of the first layers of a model into another, which has as many at least."""
    for source, target in zip(encoder_layers(model)[:count], encoder_layers(other)[:count], strict=True):
        target.load_state_dict(source.state_dict())


class _LossAfterCut:
    """The loss of the labels, or without them the squared distance from the original's outputs."""

    @torch.no_grad()
    def __init__(self, original: PreTrainedModel, calibration: Calibration) -> None:
        self._calibration, batches = calibration, calibration.batches
        head = family_of(original.config).head_of(type(original).__name__)
        self._of_sequences = head == "sequence-classification"
        self._outputs = [] if calibration.loss_sum else [calibration.run(original, batch) for batch in batches]

    @torch.no_grad()
    def of(self, model: PreTrainedModel) -> float:
        """Return the sum over all examples."""
        calibration, batches = self._calibration, self._calibration.batches
        if calibration.loss_sum:
            return sum(float(calibration.loss(model, batch)) for batch in batches)
        pairs = zip(batches, self._outputs, strict=True)
        return sum(
            _squared_distance(calibration.run(model, batch), output, self._mask(batch)) for batch, output in pairs
        )

    def _mask(self, batch: Batch) -> Tensor | None:
        """Return which outputs count; None where they are those of whole sequences, (batch, classes)."""
        return None if self._of_sequences else batch[ATTENTION_MASK]


def _squared_distance(output: Tensor, reference: Tensor, mask: Tensor | None) -> float:
    """Return the summed distance of outputs; those of tokens, (batch, length[, size]), without padding."""
    squared = (output - reference).float().square()
    return float((squared if mask is None else squared[mask.bool()]).sum())
