"""Cut layers and widths of a model as a guide says: choose by importance, compare with the original, repair."""

from dataclasses import dataclass, field

from transformers import PreTrainedModel, PreTrainedTokenizerFast

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.importance.calibration import Calibration, read_calibration
from biosqueeze.importance.depth import choose_layers
from biosqueeze.importance.guide import Guide
from biosqueeze.importance.store import SavedScores
from biosqueeze.models.depth import keep_layers
from biosqueeze.models.repair import CalibrationText, repair_depth, repair_width
from biosqueeze.models.unit_scores import UnitScores
from biosqueeze.models.width import Widths, narrow


@dataclass
class CutModel:
    """A smaller stock model, and how it was cut."""

    model: PreTrainedModel
    layers: tuple[int, ...] | None = None
    """The original's layers that it has; None where all are kept."""
    differences: dict[str, float] = field(default_factory=dict)
    """From a reference on a padded batch, before any repair."""
    scores: UnitScores = field(default_factory=UnitScores)


class GuidedCut:
    """Cuts of one model, with its calibration data read once."""

    def __init__(
        self, guide: Guide, checkpoint: Checkpoint, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast
    ) -> None:
        """Read the calibration data.

        Raises:
            SqueezeError: they cannot be read.
        """
        self.guide, self.cut = guide, CutModel(model)
        request = guide.request
        self.calibration = read_calibration(request, checkpoint, model, tokenizer) if request else Calibration()

    def keep_layers(self, layers: tuple[int, ...] | int) -> None:
        """Keep some layers, or a number of layers that the importance chooses.

        Raises:
            UsageError: the importance does not score the layers of this family.
            SqueezeError: the shallower model differs from its reference.
        """
        before, importance = self.cut.model, self.guide.importance
        if isinstance(layers, int):
            if importance is None:
                raise ValueError("a number of layers needs an importance")
            layers, scores = choose_layers(before, layers, importance, self.calibration)
            self.cut.scores = scores
        self.cut.layers = layers
        self.cut.model, self.cut.differences["layers"] = keep_layers(before, layers)
        if self.guide.repairs:
            repair_depth(self.cut.model, before, layers, self._text())

    def narrow(self, widths: Widths) -> None:
        """Keep some widths.

        Raises:
            SqueezeError: the narrower model differs from its reference.
        """
        before, importance = self.cut.model, self.guide.importance
        scores = importance.score(before, self.calibration) if importance else None
        narrowed = narrow(before, widths, scores)
        self.cut.model = narrowed.model
        self.cut.differences |= narrowed.differences
        if scores is not None:
            depth = self.cut.scores.layers
            self.cut.scores = UnitScores(**scores.items() | ({} if depth is None else {"layers": depth}))
        if self.guide.repairs:
            repair_width(self.cut.model, before, narrowed.kept, self._text())

    def saved_scores(self, total: int) -> SavedScores | None:
        """Return the scores that the cut was chosen by; None without an importance.

        Args:
            total: number of the original's layers.
        """
        if self.guide.name is None:
            return None
        rows = self.cut.scores.heads if self.cut.scores.heads is not None else self.cut.scores.neurons
        narrowed = self.cut.layers is not None and rows is not None and len(rows) == len(self.cut.layers)
        return SavedScores(
            importance=self.guide.name,
            calibration=self.guide.request.source if self.guide.request else None,
            tokens=self.calibration.tokens,
            layers=tuple(self.cut.layers or ()) if narrowed else tuple(range(total)),
            scores=self.cut.scores,
        )

    def _text(self) -> CalibrationText:
        return CalibrationText(self.calibration.batches, self.calibration.run)
