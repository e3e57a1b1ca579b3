"""What is known of a checkpoint: its facts, the relatives that are still on the disk, their curves and results."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.files import read_json
from biosqueeze.manifest import HistoryEntry, Manifest, ParentRef, read_manifest
from biosqueeze.reporting import FILE_NAME
from biosqueeze.reporting.curves import Curves, read_curves

_EVALUATION = "evaluate-"


@dataclass(frozen=True)
class TrainingRun:
    """One run of training: of the checkpoint, or of a relative."""

    name: str
    manifest: Manifest | None
    curves: Curves


@dataclass(frozen=True)
class Score:
    """What `evaluate` noted of one checkpoint on one backend."""

    checkpoint: str
    own: bool
    result: Mapping[str, Any]
    megabytes: float | None
    """Size of what the backend loads, in millions of bytes."""

    @property
    def metrics(self) -> dict[str, float]:
        """The scores and counts by name."""
        return {name: v for name, v in (self.result.get("metrics") or {}).items() if isinstance(v, int | float)}

    @property
    def measured_on(self) -> tuple[object, ...]:
        """Scores are comparable where this is the same."""
        return tuple(self.result.get(key) for key in ("task", "data", "split"))


@dataclass(frozen=True)
class ReportData:
    """All that a report tells."""

    name: str
    checkpoint: Checkpoint
    parameters: Mapping[str, int]
    files: Mapping[str, int]
    history: tuple[HistoryEntry, ...]
    trainings: tuple[TrainingRun, ...]
    scores: tuple[Score, ...]
    bench: Mapping[str, Any]


def gather(checkpoint: Checkpoint) -> ReportData:
    """Read everything; of weights at most the names and shapes.

    Raises:
        SqueezeError: a file of the checkpoint is damaged.
    """
    family = [*relatives(checkpoint), checkpoint]
    names = short_names(member.name for member in family)
    return ReportData(
        name=names[checkpoint.name],
        checkpoint=checkpoint,
        parameters=_parameters(checkpoint),
        files=_files(checkpoint.path),
        history=checkpoint.history,
        trainings=tuple(_trainings(family, names)),
        scores=tuple(
            score for member in family for score in _scores(member, names[member.name], own=member is checkpoint)
        ),
        bench=_bench(checkpoint),
    )


def short_names(names: Iterable[str]) -> dict[str, str]:
    """What to call each checkpoint: the last part of its name, or all of it where two would be called alike."""
    whole = {name: name if name.strip("./") else str(Path(name).resolve()) for name in names}
    short = {name: Checkpoint(Path(full), full).short_name for name, full in whole.items()}
    return short if len(set(short.values())) == len(short) else whole


def relatives(checkpoint: Checkpoint) -> list[Checkpoint]:
    """The parents and teachers in the history that are still here, unchanged, as directories; the oldest first."""
    found: dict[Path, Checkpoint] = {}
    for entry in checkpoint.history:
        for parent in entry.parents.values():
            relative = _find(parent, checkpoint.path.resolve().parent)
            if relative and relative.path.resolve() != checkpoint.path.resolve():
                found.setdefault(relative.path.resolve(), relative)
    return list(found.values())


def _find(parent: ParentRef, beside: Path) -> Checkpoint | None:
    """A parent where it was when it was used, or else beside its child; the same only if the weights still are."""
    for path in (Path(parent.name).expanduser(), beside / Path(parent.name).name):
        with contextlib.suppress(SqueezeError, OSError):
            written = read_manifest(path)
            if written and written.model.sha256 == parent.sha256:
                return Checkpoint(path, parent.name)
    return None


def _trainings(family: list[Checkpoint], names: Mapping[str, str]) -> Iterator[TrainingRun]:
    for member in family:
        curves = read_curves(member.path)
        if curves is not None:
            yield TrainingRun(names[member.name], member.manifest, curves)


def _scores(checkpoint: Checkpoint, name: str, *, own: bool) -> Iterator[Score]:
    for path in sorted((checkpoint.path / "results").glob(f"{_EVALUATION}*.json")):
        result = read_json(path)
        yield Score(name, own, result, _megabytes(checkpoint, str(result.get("backend"))))


def _megabytes(checkpoint: Checkpoint, backend: str) -> float | None:
    from biosqueeze.backends import files_of

    try:
        return sum(path.stat().st_size for path in files_of(checkpoint, backend)) / 1e6
    except SqueezeError:
        return None  # the files are gone, or the backend is: the score still stands


def _bench(checkpoint: Checkpoint) -> Mapping[str, Any]:
    path = checkpoint.path / "results" / "bench.json"
    return read_json(path) if path.is_file() else {}


def _parameters(checkpoint: Checkpoint) -> Mapping[str, int]:
    """By part; empty for a family that we cannot count."""
    if checkpoint.manifest:
        return checkpoint.manifest.model.parameters
    from biosqueeze.models.count import count_parts
    from biosqueeze.models.families import family_of
    from biosqueeze.models.load import detect_head, load_config

    try:
        config = load_config(checkpoint)
        return count_parts(config, family_of(config).architecture(detect_head(checkpoint, config)))
    except SqueezeError:
        return {}


def _files(path: Path) -> dict[str, int]:
    """Bytes of each file, the largest first; hidden files and earlier reports do not count."""
    files = [file for file in path.rglob("*") if file.is_file() and file.name != FILE_NAME]
    sizes = {file.relative_to(path).as_posix(): file.stat().st_size for file in files}
    visible = {name: size for name, size in sizes.items() if not name.startswith(".")}
    return dict(sorted(visible.items(), key=lambda item: (-item[1], item[0])))
