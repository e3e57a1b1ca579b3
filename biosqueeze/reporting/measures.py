"""What was measured: evaluations, benches, and scores against what they cost."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from biosqueeze.reporting.markup import Markup, element, heading, number, table
from biosqueeze.reporting.plots import Panel, Point, tradeoff_plot
from biosqueeze.reporting.report_data import ReportData, Score, short_names

_LONGEST_LABEL = 44
_BAR = 90  # pixels of the slowest row's bar, at each shape

Row = Mapping[str, Any]


def measures(story: ReportData) -> Iterator[Markup]:
    """The sections on quality and speed, as far as there is something to show."""
    rows = [row for row in story.bench.get("rows") or [] if isinstance(row, dict)]
    if not story.scores and not rows:
        words = "Nothing yet: biosqueeze evaluate and biosqueeze bench add what they measure, and report shows it."
        yield element("section", element("h2", "What was measured"), element("p", words, class_="muted"))
        return
    panels = _panels_of_bench(rows) or _panels_of_scores(story.scores)
    if panels:
        plot = element("div", tradeoff_plot(panels), class_="scroll")
        figure = element("figure", plot, role="img", aria_label="Score against cost")
        yield element("section", element("h2", "Quality against cost"), figure)
    if story.scores:
        yield _scores_section(story.scores)
    if rows:
        yield _bench_section(story.bench, rows)


def _panels_of_bench(rows: Sequence[Row]) -> list[Panel]:
    """F1 against latency at the first shape and against size, where two rows or more have an F1 of the same data."""
    # A row that was scored on other data than the first one keeps no share of its F1.
    scored = [row for row in rows if row.get("f1") is not None and row.get("retention", 1) is not None]
    first = [row for row in scored if _shape(row) == _shape(scored[0])]
    if len(first) < 2:
        return []
    names = short_names(str(row.get("checkpoint")) for row in first)
    labels = _legible([names[str(row.get("checkpoint"))] for row in first])

    def points(cost: str) -> tuple[Point, ...]:
        pairs = zip(labels, first, strict=True)
        return tuple(Point(x, str(r.get("backend")), float(r.get(cost) or 0), float(r["f1"])) for x, r in pairs)

    words = f"median latency at {_shape(first[0])}, ms"
    return [
        Panel("F1 against latency", words, "F1", points("p50_ms")),
        Panel("F1 against size", "size, MB", "F1", points("megabytes")),
    ]


def _shape(row: Row) -> str:
    return f"{row.get('batch_size')} × {row.get('length')} tokens"  # noqa: RUF001


def _legible(labels: Sequence[str]) -> list[str]:
    """Long labels without their middle, as long as they can still be told apart."""
    half = _LONGEST_LABEL // 2
    cut = [x if len(x) <= _LONGEST_LABEL else f"{x[: half - 1]}…{x[-half:]}" for x in labels]
    return cut if len(set(cut)) == len(set(labels)) else list(labels)


def _panels_of_scores(scores: Sequence[Score]) -> list[Panel]:
    """F1 against size, over the data that most of the scores were measured on."""
    drawn = [score for score in scores if "f1" in score.metrics and score.megabytes is not None]
    usual = Counter(score.measured_on for score in drawn).most_common(1)
    same = [score for score in drawn if score.measured_on == usual[0][0]]
    if len(same) < 2:
        return []
    labels = _legible([score.checkpoint for score in same])
    points = (
        Point(label, str(s.result.get("backend")), s.megabytes or 0.0, s.metrics["f1"])
        for label, s in zip(labels, same, strict=True)
    )
    return [Panel("F1 against size", "size, MB", f"F1 on {_data(same[0])}", tuple(points))]


def _data(score: Score) -> str:
    return f"{PurePath(str(score.result.get('data'))).name} ({score.result.get('split')})"


def _scores_section(scores: Sequence[Score]) -> Markup:
    """Every score of the whole split in one table, and those of each kind of entity in another."""
    found = dict.fromkeys(name for score in scores for name, v in score.metrics.items() if isinstance(v, float))
    whole = [name for name in found if "-" not in name]
    rows = [
        (
            element("b", score.checkpoint) if score.own else score.checkpoint,
            score.result.get("backend"),
            _data(score),
            *(number(score.metrics.get(name), 4) for name in whole),
            number(score.megabytes, 1),
        )
        for score in scores
    ]
    names = [heading(name) for name in whole]
    main = table(("checkpoint", "backend", "data", *names, "MB"), rows, texts=3)
    return element("section", element("h2", "Evaluations"), main, *_by_kind(scores, [n for n in found if "-" in n]))


def _by_kind(scores: Sequence[Score], found: Sequence[str]) -> Iterator[Markup]:
    """Rows are kinds of entity; a single kind has the score of the whole."""
    names = [name for name in found if name.startswith("f1-")]
    own = [score for score in scores if score.own and names[0:1] and names[0] in score.metrics]
    if len(names) < 2 or not own:
        return
    rows = [
        (
            name.removeprefix("f1-"),
            number(own[0].metrics.get(f"support-{name.removeprefix('f1-')}")),
            *(number(score.metrics.get(name), 4) for score in own),
        )
        for name in names
    ]
    yield element("h3", "F1 by kind of entity")
    yield table(("kind", "in the data", *(f"{s.result.get('backend')}, {s.result.get('split')}" for s in own)), rows)


def _bench_section(bench: Mapping[str, Any], rows: Sequence[Row]) -> Markup:
    machine = bench.get("machine") or {}
    words = f"{machine.get('cpu', 'unknown processor')}, {machine.get('threads')} threads, {bench.get('rounds')} rounds"
    names = short_names(str(row.get("checkpoint")) for row in rows)
    slowest: dict[str, float] = {}
    for row in rows:
        slowest[_shape(row)] = max(slowest.get(_shape(row), 0.001), float(row.get("p50_ms") or 0))
    columns = (
        "checkpoint",
        "backend",
        "batch",
        "",
        "median ms",
        "p95 ms",
        "speed-up",
        "seq/s",
        "peak RSS MB",
        "MB",
        "F1",
    )
    lines = [(names[str(row.get("checkpoint"))], *_bench_cells(row, slowest[_shape(row)])) for row in rows]
    note = element("p", words, class_="muted small")
    return element("section", element("h2", "Speed and size"), note, table(columns, lines, texts=4))


def _bench_cells(row: Row, slowest: float) -> Iterator[object]:
    median = float(row.get("p50_ms") or 0)
    bar = element("span", class_="bar", style=f"width:{max(1, round(_BAR * median / slowest))}px")
    speed_up = row.get("speed_up")
    yield row.get("backend")
    yield _shape(row)
    yield bar
    yield number(median, 2)
    yield number(row.get("p95_ms"), 2)
    yield number(None) if speed_up is None else f"{speed_up:.2f}×"  # noqa: RUF001
    yield number(row.get("sequences_per_second"), 1)
    yield number(row.get("peak_rss_mb"))
    yield number(row.get("megabytes"), 1)
    yield number(row.get("f1"), 4)
