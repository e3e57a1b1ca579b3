"""The last sections of the page: evaluations, bench results, and scores drawn against size and latency."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from biosqueeze.checkpoint import short_names
from biosqueeze.progress import counted
from biosqueeze.reporting.formatting import format_number
from biosqueeze.reporting.plots import Panel, Point
from biosqueeze.reporting.report_data import Bench, BenchRow, Evaluation
from biosqueeze.summaries import score_heading, score_name

_LONGEST_LABEL = 44
_BAR_PIXELS = 90  # the slowest row's bar, at each shape
_BENCH_COLUMNS = (
    *("checkpoint", "backend", "batch", "", "median ms", "p95 ms"),
    *("speed-up", "seq/s", "peak RSS MB", "MB"),
)


@dataclass(frozen=True)
class EvaluationRow:
    """One evaluation, as text; `own` marks those of the reported checkpoint."""

    checkpoint: str
    own: bool
    backend: str
    data: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class EvaluationTable:
    """The scores of whole splits, and the F1 of each class: a label or a type of entities."""

    columns: tuple[str, ...]
    rows: tuple[EvaluationRow, ...]
    class_columns: tuple[str, ...] = ()
    class_rows: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class BenchTableRow:
    """One row of the bench, as text, with a bar as long as its latency."""

    checkpoint: str
    backend: str
    shape: str
    bar_pixels: int
    values: tuple[str, ...]


@dataclass(frozen=True)
class BenchTable:
    """The bench with the machine that it ran on."""

    machine: str
    columns: tuple[str, ...]
    rows: tuple[BenchTableRow, ...]


def tradeoff_panels(evaluations: Sequence[Evaluation], bench: Bench | None) -> list[Panel]:
    """Return the score against latency and size; against size alone where no bench has comparable rows."""
    return _bench_panels(bench.rows if bench else ()) or _evaluation_panels(evaluations)


def _bench_panels(rows: Sequence[BenchRow]) -> list[Panel]:
    """Draw the first shape, for the data that most of its scores are on, where those are two or more."""
    scored = [row for row in rows if row.score is not None and row.evaluated_on is not None]
    shown = [row for row in scored if _shape(row) == _shape(scored[0])]
    usual = Counter((row.evaluated_on, row.metric) for row in shown).most_common(1)
    first = [row for row in shown if (row.evaluated_on, row.metric) == usual[0][0]]
    if len(first) < 2:
        return []
    names = short_names(row.checkpoint for row in first)
    labels = _shortened([names[row.checkpoint] for row in first])

    def points(costs: Iterable[float | None]) -> tuple[Point, ...]:
        rows = zip(labels, first, costs, strict=True)
        return tuple(Point(label, row.backend, cost or 0.0, row.score or 0.0) for label, row, cost in rows)

    name = score_name(first[0].metric)
    latency = f"median latency at {_shape(first[0])}, ms"
    return [
        Panel(f"{name} against latency", latency, name, points(row.p50_ms for row in first)),
        Panel(f"{name} against size", "size, MB", name, points(row.megabytes for row in first)),
    ]


def _shape(row: BenchRow) -> str:
    return f"{row.batch_size} × {row.length} tokens"  # noqa: RUF001


def _shortened(labels: Sequence[str]) -> list[str]:
    """Cut the middle out of long labels, unless two of them would then be equal."""
    half = _LONGEST_LABEL // 2
    cut = [text if len(text) <= _LONGEST_LABEL else f"{text[: half - 1]}…{text[-half:]}" for text in labels]
    return cut if len(set(cut)) == len(set(labels)) else list(labels)


def _evaluation_panels(evaluations: Sequence[Evaluation]) -> list[Panel]:
    """Draw the score against size, for the data that most of the evaluations share."""
    drawn = [each for each in evaluations if each.score is not None and each.megabytes is not None]
    usual = Counter((each.measured_on, each.metric) for each in drawn).most_common(1)
    same = [each for each in drawn if (each.measured_on, each.metric) == usual[0][0]]
    if len(same) < 2:
        return []
    labels = _shortened([evaluation.checkpoint for evaluation in same])
    points = (
        Point(label, evaluation.backend, evaluation.megabytes or 0.0, evaluation.score or 0.0)
        for label, evaluation in zip(labels, same, strict=True)
    )
    name = score_name(same[0].metric)
    return [Panel(f"{name} against size", "size, MB", f"{name} on {data_text(same[0])}", tuple(points))]


def data_text(evaluation: Evaluation) -> str:
    """Return the name of the data, with split and restriction: "ncbi (test; types Disease)"."""
    restriction = f"; {evaluation.restriction}" if evaluation.restriction else ""
    return f"{PurePath(evaluation.data).name} ({evaluation.split}{restriction})"


def evaluation_table(evaluations: Sequence[Evaluation]) -> EvaluationTable | None:
    """Return every evaluation with its scores of the whole split; None where there are none."""
    if not evaluations:
        return None
    scores = dict.fromkeys(name for e in evaluations for name, v in e.metrics.items() if isinstance(v, float))
    whole = [name for name in scores if "-" not in name]
    rows = tuple(
        EvaluationRow(
            evaluation.checkpoint,
            evaluation.own,
            evaluation.backend,
            data_text(evaluation),
            (
                *(format_number(evaluation.metrics.get(name), 4) for name in whole),
                format_number(evaluation.megabytes, 1),
            ),
        )
        for evaluation in evaluations
    )
    columns = ("checkpoint", "backend", "data", *map(score_name, whole), "MB")
    return EvaluationTable(columns, rows, *_class_table(evaluations, [name for name in scores if name[:3] == "f1-"]))


def _class_table(
    evaluations: Sequence[Evaluation], names: Sequence[str]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Return columns and rows of F1 by class; empty for a single class, whose F1 is that of the whole."""
    classed = [each for each in evaluations if each.own and any(name in each.metrics for name in names)]
    own = [each for each in classed if each.measured_on == classed[0].measured_on]  # counts are those of one data set
    names = [name for name in names if any(name in each.metrics for each in own)]
    if len(names) < 2:
        return (), ()
    rows = tuple(
        (
            label,
            format_number(own[0].metrics.get(f"support-{label}")),
            *(format_number(evaluation.metrics.get(f"f1-{label}"), 4) for evaluation in own),
        )
        for label in (name.removeprefix("f1-") for name in names)
    )
    return ("class", "in the data", *(f"{evaluation.backend}, {evaluation.split}" for evaluation in own)), rows


def bench_table(bench: Bench | None) -> BenchTable | None:
    """Return the rows of a bench; None where there are none."""
    if bench is None or not bench.rows:
        return None
    names = short_names(row.checkpoint for row in bench.rows)
    slowest: dict[str, float] = {}
    for row in bench.rows:
        slowest[_shape(row)] = max(slowest.get(_shape(row), 0.001), row.p50_ms)
    rows = tuple(_bench_row(row, names[row.checkpoint], slowest[_shape(row)]) for row in bench.rows)
    counts = f"{counted(bench.threads, 'thread')}, {counted(bench.rounds, 'round')}"
    torch_device = "" if bench.device == "cpu" else f"; PyTorch on {bench.device}"
    machine = f"{bench.cpu or 'unknown processor'}, {counts}{torch_device}"
    scores = score_heading(row.metric for row in bench.rows if row.score is not None)
    return BenchTable(machine, (*_BENCH_COLUMNS, scores), rows)


def _bench_row(row: BenchRow, name: str, slowest: float) -> BenchTableRow:
    values = (
        format_number(row.p50_ms, 2),
        format_number(row.p95_ms, 2),
        format_number(None) if row.speed_up is None else f"{row.speed_up:.2f}×",  # noqa: RUF001
        format_number(row.sequences_per_second, 1),
        format_number(row.peak_rss_mb),
        format_number(row.megabytes, 1),
        format_number(row.score, 4),
    )
    bar = max(1, round(_BAR_PIXELS * row.p50_ms / slowest))
    return BenchTableRow(name, row.backend, _shape(row), bar, values)
