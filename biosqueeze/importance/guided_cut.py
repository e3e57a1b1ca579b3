"""Cut layers and widths of a model as a guide says: choose by importance, compare with the original, repair."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from transformers import PreTrainedModel

from biosqueeze.importance import WITHOUT_DATA, open_importance
from biosqueeze.importance.calibration import Calibration
from biosqueeze.importance.depth import choose_layers, choose_layers_after_repair
from biosqueeze.importance.guide import Guide
from biosqueeze.importance.store import LOSS_AFTER_REPAIR, SavedScores
from biosqueeze.models.cuts.depth import keep_layers, parse_layers
from biosqueeze.models.cuts.repair import Targets, repair_depth, repair_width
from biosqueeze.models.cuts.streams import CalibrationText
from biosqueeze.models.cuts.unit_scores import UnitScores
from biosqueeze.models.cuts.width import Widths, narrow
from biosqueeze.models.families import family_of
from biosqueeze.models.layers import query_group
from biosqueeze.progress import note


@dataclass
class CutModel:
    """A smaller stock model, and how it was cut."""

    model: PreTrainedModel
    layers: tuple[int, ...] | None = None
    """The original's layers that it has; None where all are kept."""
    heads: tuple[tuple[int, ...], ...] | None = None
    """For each of its layers the original's query heads that it has; None where all are kept."""
    differences: dict[str, float] = field(default_factory=dict)
    """From a reference on a padded batch, before any repair."""
    scores: UnitScores = field(default_factory=UnitScores)
    """That chose what it has."""
    layers_by: str | None = None
    """What scored the layers; None where their scores chose nothing."""


class GuidedCut:
    """Cuts of one model."""

    def __init__(self, guide: Guide, calibration: Calibration, model: PreTrainedModel) -> None:
        """Begin with the whole model.

        Args:
            guide: of the cuts.
            calibration: the data of its request; empty where it has none.
            model: that is cut.
        """
        self.whole, self.cut = model, CutModel(model)
        self.calibration = calibration if guide.request else Calibration()
        is_short = guide.request is not None and self.calibration.tokens < guide.request.tokens
        self.guide = guide.limited(model.config, self.calibration.tokens) if is_short else guide

    @functools.cached_property
    def scores(self) -> UnitScores:
        """The scores of the whole model, by the guide's importance or by magnitude; none where layers share weights."""
        if family_of(self.whole.config).shares_layers:
            return UnitScores()
        importance = self.guide.importance or open_importance(WITHOUT_DATA)
        return importance.score(self.whole, self.calibration)

    def restart(self) -> None:
        """Forget the cuts, to cut the whole model to another budget; its scores have chosen the shape."""
        self.cut = CutModel(self.whole, scores=self.scores, layers_by=self.guide.name)

    def keep_layers(self, layers: tuple[int, ...] | int) -> None:
        """Keep some layers, or a number of layers that the data choose.

        Raises:
            UsageError: the importance does not score the layers of this family.
            SqueezeError: the shallower model differs from its reference.
        """
        before = self.cut.model
        if isinstance(layers, int):
            layers = self._choose_layers(before, layers)
            by = f"chosen by {self.cut.layers_by}" if self.cut.layers_by else "spread evenly"
            note(f"keep layers {', '.join(map(str, layers))}, {by}")
        self.cut.layers = layers
        self.cut.model, self.cut.differences["layers"] = keep_layers(before, layers)
        if self.guide.repairs:
            repair_depth(self.cut.model, Targets(before, self._text()), layers)

    def _choose_layers(self, model: PreTrainedModel, count: int) -> tuple[int, ...]:
        if self.guide.spreads_layers:
            self.cut.scores, self.cut.layers_by = replace(self.cut.scores, layers=None), None
            return parse_layers(str(count), model.config.num_hidden_layers)
        if self.guide.tries_layers:
            layers, lost = choose_layers_after_repair(model, count, self.calibration)
            self.cut.scores, self.cut.layers_by = replace(self.cut.scores, layers=lost), LOSS_AFTER_REPAIR
            return layers
        if self.guide.importance is None:
            raise ValueError("a number of layers needs an importance")
        layers, scores = choose_layers(model, count, self.guide.importance, self.calibration, self.scores)
        self.cut.scores, self.cut.layers_by = replace(self.scores, layers=scores), self.guide.name
        return layers

    def narrow(self, widths: Widths) -> None:
        """Keep some widths.

        Raises:
            SqueezeError: the narrower model differs from its reference.
        """
        before = self.cut.model
        scores = self._scores_of(before)
        narrowed = narrow(before, widths, scores)
        self.cut.model = narrowed.model
        self.cut.heads = _query_heads(narrowed.kept.heads, query_group(before.config))
        self.cut.differences |= narrowed.differences
        if scores is not None:
            if before is self.whole and self.cut.layers_by is None:
                self.cut.layers_by, self.cut.scores = self.guide.name, scores
            self.cut.scores = replace(scores, layers=self.cut.scores.layers)
        if self.guide.repairs:
            repair_width(self.cut.model, before, narrowed.kept, self._text())

    def saved_scores(self, total: int) -> SavedScores | None:
        """Return the scores that the cut was chosen by; None where it was chosen without an importance and trials.

        Args:
            total: number of the original's layers.
        """
        if not (self.guide.name or self.cut.layers_by) or not self.cut.scores.items():
            return None
        rows = self.cut.scores.heads if self.cut.scores.heads is not None else self.cut.scores.neurons
        narrowed = self.cut.layers is not None and rows is not None and len(rows) == len(self.cut.layers)
        return SavedScores(
            importance=self.guide.name,
            layers_by=self.cut.layers_by,
            calibration=self.guide.request.source if self.guide.request else None,
            tokens=self.calibration.tokens,
            layers=tuple(self.cut.layers or ()) if narrowed else tuple(range(total)),
            scores=self.cut.scores,
        )

    def facts(self) -> dict[str, Any]:
        """Return what the manifest records of a guided cut."""
        if self.guide.name is None and self.guide.request is None:
            return {}
        tried = {"layers_by": LOSS_AFTER_REPAIR} if self.cut.layers_by == LOSS_AFTER_REPAIR else {}
        return {
            "importance": self.guide.name,
            **tried,
            "calibration": self.guide.request.source if self.guide.request else None,
            "tokens": self.calibration.tokens,
            "repaired": self.guide.repairs,
        }

    def _scores_of(self, model: PreTrainedModel) -> UnitScores | None:
        """Return the scores by the guide's importance; None without one."""
        if self.guide.importance is None:
            return None
        return self.scores if model is self.whole else self.guide.importance.score(model, self.calibration)

    def _text(self) -> CalibrationText:
        return CalibrationText(self.calibration.batches, self.calibration.run)


def _query_heads(kept: Sequence[Sequence[int]] | None, group: int) -> tuple[tuple[int, ...], ...] | None:
    """Return the kept query heads of each layer from the kept units, each of which has `group` of them."""
    if kept is None:
        return None
    return tuple(tuple(unit * group + head for unit in layer for head in range(group)) for layer in kept)
