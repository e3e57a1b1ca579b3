"""Options of `shrink` that choose by data what is cut, and repair it. Torch-free."""

from dataclasses import dataclass
from typing import Annotated, Literal

from biosqueeze import registry
from biosqueeze.importance import DEFAULT, WITHOUT_DATA
from biosqueeze.options import Bounds, Excludes, Group, OnDisk, Suggests, Syntax

TOKENS = 32_768
_WHY = "a preset sets the whole shape"


@dataclass(frozen=True, kw_only=True)
class ImportanceOptions:
    """How the layers, heads, neurons and hidden dimensions that are kept are chosen, and what repairs the cut."""

    importance: Annotated[
        str | None,
        f"How to choose what is kept: {', '.join(registry.names('importance'))}. --layers N then removes the least "
        f"important layer until N are left. Default: with --calibration {DEFAULT}, and the layers without which "
        f"most is lost after repair; else {WITHOUT_DATA}, and layers spread evenly.",
        Syntax("NAME"),
        Suggests(lambda: registry.names("importance")),
        Excludes("student", why=_WHY),
        Group.IMPORTANCE,
    ] = None
    calibration: Annotated[
        str | None,
        "Data to compute importances on, to repair with, and whose tokens smaller embeddings keep best: the directory "
        "of the checkpoint's task, or text (.txt, .jsonl, .gz). Default: the data of its fine-tuning, where a width or "
        "the embedding size is cut or an option needs data.",
        OnDisk(),
        Excludes("student", why=_WHY),
        Group.IMPORTANCE,
    ] = None
    calibration_tokens: Annotated[
        int, "Tokens to calibrate on.", Bounds(least=1), Excludes("student", why=_WHY), Group.IMPORTANCE
    ] = TOKENS
    repair: Annotated[
        Literal["auto", "none", "least-squares"],
        "After a cut, fit the remaining weights to the original's outputs on the calibration data by least squares. "
        "auto: where there are calibration data, of twice as many tokens as a layer has inputs at least.",
        Excludes("student", why=_WHY),
        Group.IMPORTANCE,
    ] = "auto"

    @property
    def importance_name(self) -> str | None:
        """The importance that chooses; None for the magnitudes and rules of a cut without data."""
        return self.importance or (DEFAULT if self.calibration else None)
