"""Gather what the report shows: the checkpoint, its parents that are still on the disk, their curves and results."""

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from biosqueeze.card.metadata import restriction_of
from biosqueeze.card.results import evaluation_name
from biosqueeze.checkpoint import Checkpoint, short_names
from biosqueeze.errors import SqueezeError
from biosqueeze.files import megabytes, read_json
from biosqueeze.files.json_object import JsonObject
from biosqueeze.manifest import Manifest, ParentRef, read_manifest
from biosqueeze.reporting import FILE_NAME
from biosqueeze.reporting.curves import Curves, as_float, read_curves
from biosqueeze.summaries import measured_on

_ADVICE = "delete the file and measure again"


@dataclass(frozen=True)
class TrainingRun:
    """One training: of the checkpoint, or of a parent."""

    name: str
    manifest: Manifest | None
    curves: Curves


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The result of `evaluate` for one checkpoint on one backend.

    Args:
        checkpoint: its short name.
        own: whether it is the reported checkpoint, and not a parent.
        task: the kind of task.
        data: the data set, as it was named.
        data_path: its absolute path; None for one of the Hub, and in results of earlier releases.
        split: of the data set.
        restriction: to some labels, see `card.metadata.restriction_of`.
        backend: RUNTIME[:PRECISION].
        metric: the score that checkpoints are compared by.
        metrics: scores (float) and counts (int) by name.
        megabytes: size of the files that the backend loads, in millions of bytes; None where they are gone.
    """

    checkpoint: str
    own: bool
    task: str
    data: str
    data_path: str | None = None
    split: str
    restriction: str
    backend: str
    metric: str
    metrics: Mapping[str, float]
    megabytes: float | None

    @property
    def measured_on(self) -> tuple[str, ...]:
        """Evaluations with equal values are comparable."""
        result = {"task": self.task, "data": self.data, "data_path": self.data_path, "split": self.split}
        return *measured_on(result)[:-1], self.restriction

    @property
    def score(self) -> float | None:
        """The value of `metric`."""
        return self.metrics.get(self.metric)


@dataclass(frozen=True, kw_only=True)
class BenchRow:
    """One row of results/bench.json; scores of equal `evaluated_on` and `metric` are comparable, of None none."""

    checkpoint: str
    backend: str
    batch_size: int | None
    length: int | None
    p50_ms: float
    p95_ms: float | None
    speed_up: float | None
    sequences_per_second: float | None
    peak_rss_mb: float | None
    megabytes: float | None
    metric: str
    score: float | None
    evaluated_on: str | None


@dataclass(frozen=True)
class Bench:
    """results/bench.json."""

    cpu: str | None
    threads: int | None
    rounds: int | None
    rows: tuple[BenchRow, ...]
    device: str = "cpu"
    """Of PyTorch; the other runtimes run on the CPU."""


@dataclass(frozen=True)
class ReportData:
    """All that a report shows; `files` are bytes by path, the largest first."""

    name: str
    checkpoint: Checkpoint
    parameters: Mapping[str, int]
    files: Mapping[str, int]
    trainings: tuple[TrainingRun, ...]
    evaluations: tuple[Evaluation, ...]
    bench: Bench | None


def gather(checkpoint: Checkpoint) -> ReportData:
    """Read everything; of the weights at most names and shapes.

    Raises:
        SqueezeError: a file of the checkpoint is damaged.
    """
    family = [*relatives(checkpoint), checkpoint]
    names = short_names(member.name for member in family)
    evaluations = (_evaluations(member, names[member.name], own=member is checkpoint) for member in family)
    return ReportData(
        name=names[checkpoint.name],
        checkpoint=checkpoint,
        parameters=_parameters(checkpoint),
        files=_file_sizes(checkpoint.path),
        trainings=tuple(_trainings(family, names)),
        evaluations=tuple(evaluation for each in evaluations for evaluation in each),
        bench=_read_bench(checkpoint),
    )


def relatives(checkpoint: Checkpoint) -> list[Checkpoint]:
    """Return the parents and teachers in the history that still exist, unchanged, as directories; the oldest first."""
    by_path: dict[Path, Checkpoint] = {}
    for entry in checkpoint.history:
        for parent in entry.parents.values():
            relative = _find(parent, checkpoint.path.resolve().parent)
            if relative and relative.path.resolve() != checkpoint.path.resolve():
                by_path.setdefault(relative.path.resolve(), relative)
    return list(by_path.values())


def teacher_evaluations(checkpoint: Checkpoint) -> list[Evaluation]:
    """Return the evaluations of the last distillation's teacher, if it is still there, unchanged; none of damaged ones.

    What is damaged is of another checkpoint than the one at hand.
    """
    teachers = [parent for entry in checkpoint.history for role, parent in entry.parents.items() if role == "teacher"]
    teacher = _find(teachers[-1], checkpoint.path.resolve().parent) if teachers else None
    with contextlib.suppress(SqueezeError):
        return list(_evaluations(teacher, teacher.name, own=False)) if teacher else []
    return []


def _find(parent: ParentRef, folder: Path) -> Checkpoint | None:
    """Find a parent at its recorded path, else in the folder of its child; its weights must be unchanged."""
    for path in (Path(parent.name).expanduser(), folder / Path(parent.name).name):
        with contextlib.suppress(SqueezeError, OSError, RuntimeError, ValueError):
            written = read_manifest(path)
            if written and written.model.sha256 == parent.sha256:
                return Checkpoint(path, parent.name)
    return None


def _trainings(family: list[Checkpoint], names: Mapping[str, str]) -> Iterator[TrainingRun]:
    for member in family:
        curves = read_curves(member.path)
        if curves is not None:
            yield TrainingRun(names[member.name], member.manifest, curves)


def _evaluations(checkpoint: Checkpoint, name: str, *, own: bool) -> Iterator[Evaluation]:
    for path in sorted((checkpoint.path / "results").glob(f"{evaluation_name('*')}.json")):
        json = JsonObject(read_json(path), str(path), _ADVICE)
        backend = json.optional("backend", str) or "torch"
        metrics = json.optional("metrics", dict) or {}
        yield Evaluation(
            checkpoint=name,
            own=own,
            task=json.optional("task", str) or "",
            data=json.optional("data", str) or "",
            data_path=json.optional("data_path", str),
            split=json.optional("split", str) or "",
            restriction=restriction_of(json.values),
            backend=backend,
            metric=json.optional("metric", str) or "f1",
            metrics={key: value for key, value in metrics.items() if math.isfinite(as_float(value))},
            megabytes=_megabytes(checkpoint, backend),
        )


def _megabytes(checkpoint: Checkpoint, backend: str) -> float | None:
    from biosqueeze.backends import files_of

    try:
        return megabytes(files_of(checkpoint, backend))
    except SqueezeError:
        return None  # the files or the backend are gone; the score is still shown


def _read_bench(checkpoint: Checkpoint) -> Bench | None:
    path = checkpoint.path / "results" / "bench.json"
    if not path.is_file():
        return None
    json = JsonObject(read_json(path), str(path), _ADVICE)
    machine = json.optional_child("machine")
    rows = tuple(_parse_row(row) for row in json.children("rows")) if "rows" in json.values else ()
    return Bench(
        cpu=machine.optional("cpu", str) if machine else None,
        threads=machine.optional("threads", int) if machine else None,
        rounds=json.optional("rounds", int),
        rows=rows,
        device=(machine.optional("device", str) if machine else None) or "cpu",
    )


def _parse_row(json: JsonObject) -> BenchRow:
    score = _finite(json, "score")
    is_on_data_of_first = json.values.get("retention", 1.0) is not None  # all that earlier releases tell
    return BenchRow(
        checkpoint=json.get("checkpoint", str),
        backend=json.get("backend", str),
        batch_size=json.optional("batch_size", int),
        length=json.optional("length", int),
        p50_ms=_finite(json, "p50_ms") or 0.0,
        p95_ms=_finite(json, "p95_ms"),
        speed_up=_finite(json, "speed_up"),
        sequences_per_second=_finite(json, "sequences_per_second"),
        peak_rss_mb=_finite(json, "peak_rss_mb"),
        megabytes=_finite(json, "megabytes"),
        metric=json.optional("metric", str) or "f1",
        score=_finite(json, "f1") if score is None else score,  # f1: of earlier releases
        evaluated_on=json.optional("evaluated_on", str) or ("" if is_on_data_of_first else None),
    )


def _finite(json: JsonObject, key: str) -> float | None:
    """Return a number; None where it is missing, NaN or infinite."""
    value = json.optional(key, float)
    return value if value is not None and math.isfinite(value) else None


def _parameters(checkpoint: Checkpoint) -> Mapping[str, int]:
    """Return the parameters by part; empty for a family that cannot be counted."""
    if checkpoint.manifest:
        return checkpoint.manifest.model.parameters
    from biosqueeze.models.count import count_parts
    from biosqueeze.models.families import family_of
    from biosqueeze.models.loading.detection import detect_head
    from biosqueeze.models.loading.load import load_config

    try:
        config = load_config(checkpoint)
        return count_parts(config, family_of(config).architecture(detect_head(checkpoint, config)))
    except SqueezeError:
        return {}


def _file_sizes(path: Path) -> dict[str, int]:
    """Return the bytes of each file, the largest first; hidden files and earlier reports are left out."""
    files = [file for file in path.rglob("*") if file.is_file() and file.name != FILE_NAME]
    sizes = {file.relative_to(path).as_posix(): file.stat().st_size for file in files}
    visible = {name: size for name, size in sizes.items() if not name.startswith(".")}
    return dict(sorted(visible.items(), key=lambda item: (-item[1], item[0])))
