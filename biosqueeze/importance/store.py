"""The scores of a cut in importance.safetensors, beside the checkpoint that was cut by them."""

import json
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.importance import FILE
from biosqueeze.models.cuts.unit_scores import UnitScores

LOSS_AFTER_REPAIR = "loss-after-repair"
"""What scores layers whose removal was tried; no importance has this name."""


@dataclass(frozen=True, kw_only=True)
class SavedScores:
    """Scores, and what they were computed from."""

    importance: str | None
    """Of heads, neurons and hidden dimensions; None where they have no scores."""
    layers_by: str | None
    """What scored the layers: an importance, or `LOSS_AFTER_REPAIR`, with NaN for layers that were not tried; None
    where they have no scores."""
    calibration: str | None
    """Data set or corpus; None without."""
    tokens: int
    """Of the calibration data; 0 without."""
    layers: tuple[int, ...]
    """The original's layer of each row of the heads' and neurons' scores."""
    scores: UnitScores

    @property
    def summary(self) -> str:
        """Say what the scores are by, and on what data."""
        names = {kind: self.layers_by if kind == "layers" else self.importance for kind in self.scores.items()}
        kinds = {name: ", ".join(kind for kind in names if names[kind] == name) for name in names.values()}
        by = "; ".join(f"{scored} by {name}" for name, scored in kinds.items())
        return f"{by}; on {self.tokens:,} tokens of {self.calibration}" if self.calibration else by


def save_scores(directory: Path, saved: SavedScores) -> None:
    """Write the scores into a checkpoint's directory."""
    facts = {
        "importance": saved.importance,
        "layers_by": saved.layers_by,
        "calibration": saved.calibration,
        "tokens": saved.tokens,
        "layers": saved.layers,
    }
    tensors = {kind: tensor.contiguous() for kind, tensor in saved.scores.items().items()}
    save_file(tensors, directory / FILE, metadata={"biosqueeze": json.dumps(facts)})


def load_scores(checkpoint: Checkpoint) -> SavedScores:
    """Read the scores of a checkpoint.

    Raises:
        SqueezeError: there are none, or the file is damaged.
    """
    path = checkpoint.path / FILE
    if not path.is_file():
        raise SqueezeError(
            f"{checkpoint.name} has no {FILE}; `biosqueeze shrink --importance NAME` writes it beside what it cuts"
        )
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {})["biosqueeze"])
            scores = UnitScores(**{kind: file.get_tensor(kind) for kind in file.keys()})  # noqa: SIM118 - no mapping
        return SavedScores(
            importance=facts["importance"],
            layers_by=facts.get("layers_by", facts["importance"]),  # files of version 0.1 lack it
            calibration=facts["calibration"],
            tokens=int(facts["tokens"]),
            layers=tuple(facts["layers"]),
            scores=scores,
        )
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise SqueezeError(f"{path} is damaged ({error}); shrink the checkpoint again") from error
