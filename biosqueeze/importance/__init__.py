"""Importances of a cut, one file each: how much the heads, neurons, hidden dimensions and layers of an encoder matter.

`importance/fisher.py` is the importance called fisher; a new one is a file with `NEEDS`, `SCORES` and `score`.
"""

from typing import TYPE_CHECKING, Literal, Protocol, cast

from biosqueeze import registry

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from biosqueeze.importance.calibration import Calibration
    from biosqueeze.models.cuts.unit_scores import UnitScores

DEFAULT = "fisher"
"""The importance where calibration data are given and no importance is named; without data it is the magnitude."""
WITHOUT_DATA = "magnitude"
FILE = "importance.safetensors"
"""Where the scores of a cut are, beside the checkpoint that was cut by them."""


class Importance(Protocol):
    """The interface of each module of this folder."""

    NEEDS: Literal["weights", "text", "loss"]
    """What it reads beside the weights: nothing, text, or text with a loss (labels of the task, or masked tokens)."""
    SCORES: tuple[str, ...]
    """The kinds of units that it scores, of `UnitScores`."""

    def score(self, model: "PreTrainedModel", calibration: "Calibration") -> "UnitScores":
        """Return the scores of a model's units; those of heads and neurons only if its family can be narrowed.

        Args:
            model: in eval mode; its layers must not share their weights.
            calibration: batches of text, without any where it needs only weights; with a loss if it needs one.
        """


def open_importance(name: str) -> Importance:
    """Return an importance by name.

    Raises:
        UsageError: there is none of this name.
    """
    return cast(Importance, registry.load("importance", name))


def width_importances() -> str:
    """Return the names of those that score heads and neurons too, for messages."""
    *others, last = (name for name in registry.names("importance") if scores_width(name))
    return f"{', '.join(others)} or {last}"


def scores_width(name: str) -> bool:
    """Return whether an importance scores heads and neurons, and not layers alone."""
    return "neurons" in open_importance(name).SCORES
