"""Test scores of checkpoints on a suite of benchmarks: means, deviations, averages, and the papers' columns."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from biosqueeze import text_table
from biosqueeze.benchmarks.suite import Benchmark, Suite
from biosqueeze.progress import counted
from biosqueeze.summaries import share_of

PUBLISHED_SHOWN = 3


@dataclass(frozen=True)
class ScoreCell:
    """The runs of one checkpoint on one benchmark, in percent."""

    scores: tuple[float, ...]
    minutes: float
    statistic: Literal["mean", "median"] = "mean"  # that the paper reports

    @property
    def score(self) -> float:
        """The statistic of the runs."""
        return self.mean if self.statistic == "mean" else statistics.median(self.scores)

    @property
    def mean(self) -> float:
        """Mean of the runs."""
        return statistics.fmean(self.scores)

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation; None for a single run."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else None


@dataclass(frozen=True)
class Scoreboard:
    """The scores of all runs of a suite.

    Args:
        suite: with the papers' scores.
        benchmarks: those that were run.
        checkpoints: names; the first one is the reference of the retained percentages.
        cells: runs by checkpoint and name of the benchmark.
        notes: differences from the paper, by name of the benchmark.
        skipped: why a benchmark was not run, by its name.
        settings: finetune's options by name of the benchmark, without those of a grid.
        chosen: the point of the grid that is best on dev, by checkpoint and name of the benchmark.
        published: the papers' columns to show.
    """

    suite: Suite
    benchmarks: tuple[Benchmark, ...]
    checkpoints: tuple[str, ...]
    cells: Mapping[tuple[str, str], ScoreCell]
    notes: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    chosen: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    published: tuple[str, ...] = ()

    def mean_of(self, checkpoint: str) -> float | None:
        """Return the suite's average over the benchmarks that were run, in percent."""
        return self.suite.total.of({b.name: self.cells[checkpoint, b.name].score for b in self.benchmarks})

    @property
    def is_partial(self) -> bool:
        """Whether the suite's average lacks benchmarks."""
        return bool(self.suite.total.missing(dict.fromkeys((b.name for b in self.benchmarks), 0.0)))

    def retained(self, checkpoint: str, name: str) -> float | None:
        """Return a checkpoint's score in percent of the first checkpoint's; None where that is not positive."""
        return _share_in_percent(self.cells[checkpoint, name].score, self.cells[self.checkpoints[0], name].score)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON."""
        return {
            "suite": self.suite.name,
            "average": self.suite.headline,
            "partial": self.is_partial,
            "averages": {name: self.mean_of(name) for name in self.checkpoints},
            "benchmarks": [self._row_as_dict(benchmark) for benchmark in self.benchmarks],
            "skipped": dict(self.skipped),
        }

    def _row_as_dict(self, benchmark: Benchmark) -> dict[str, Any]:
        results = {
            name: {
                "score": self.cells[name, benchmark.name].score,
                "statistic": self.cells[name, benchmark.name].statistic,
                "mean": self.cells[name, benchmark.name].mean,
                "deviation": self.cells[name, benchmark.name].deviation,
                "runs": list(self.cells[name, benchmark.name].scores),
                "minutes": self.cells[name, benchmark.name].minutes,
                "retained": self.retained(name, benchmark.name),
                **({"chosen": dict(point)} if (point := self.chosen.get((name, benchmark.name))) else {}),
            }
            for name in self.checkpoints
        }
        return {
            "name": benchmark.name,
            "metric": benchmark.metric,
            "results": results,
            "published": {model: benchmark.published_score(model) for model in self.suite.models},
            "options": dict(self.settings.get(benchmark.name, {})),
            "note": self.notes.get(benchmark.name, ""),
        }

    def columns(self) -> list[str]:
        """Return the heads of the table's columns."""
        own = [head for name in self.checkpoints for head in self._heads(name)]
        return ["benchmark", "metric", *own, "minutes", *self.published]

    def _heads(self, checkpoint: str) -> list[str]:
        return [checkpoint] if checkpoint == self.checkpoints[0] else [checkpoint, "keeps %"]

    def rows(self) -> Iterator[list[str]]:
        """Yield the table's rows, the average last."""
        for benchmark in self.benchmarks:
            mark = "*" if benchmark.name in self.notes else ""
            own = [text for name in self.checkpoints for text in self._scores(name, benchmark.name)]
            minutes = sum(self.cells[name, benchmark.name].minutes for name in self.checkpoints)
            papers = [f"{benchmark.published_score(model):.2f}" for model in self.published]
            yield [benchmark.title + mark, benchmark.metric, *own, f"{minutes:.0f}", *papers]
        yield self._last_row()

    def _scores(self, checkpoint: str, name: str) -> list[str]:
        cell = self.cells[checkpoint, name]
        score = f"{cell.score:.2f}" + (f" ± {cell.deviation:.2f}" if cell.deviation is not None else "")
        return [score] if checkpoint == self.checkpoints[0] else [score, _percent(self.retained(checkpoint, name))]

    def _last_row(self) -> list[str]:
        means = {name: self.mean_of(name) for name in self.checkpoints}
        own: list[str] = []
        for name, mean in means.items():
            first = means[self.checkpoints[0]]
            kept = [] if name == self.checkpoints[0] else [_percent(_share_in_percent(mean, first))]
            own += [f"{mean:.2f}" if mean is not None else "-", *kept]
        minutes = sum(cell.minutes for cell in self.cells.values())
        papers = [self._published_average(model) for model in self.published]
        return [self.suite.headline + (", partial" if self.is_partial else ""), "", *own, f"{minutes:.0f}", *papers]

    def _published_average(self, model: str) -> str:
        """Return the published average over the benchmarks that were run, so that the two are comparable."""
        mean = self.suite.total.of({b.name: b.published_score(model) for b in self.benchmarks})
        return f"{mean:.2f}" if mean is not None else "-"

    def footnotes(self) -> list[str]:
        """Return the notes below the table."""
        differing = [f"* {self.suite[name].title}: {text}" for name, text in self.notes.items()]
        absent = [f"{self.suite[name].title}: not run, {why}" for name, why in self.skipped.items()]
        medians = [b.title for b in self.benchmarks if b.hyper.statistic == "median"]
        statistic = [f"Medians, as in the paper: {', '.join(medians)}."] if medians else []
        same = counted(len(self.benchmarks), "benchmark")
        averages = f"Published averages are over the same {same}." if self.is_partial else ""
        return [*differing, *absent, *statistic, *([averages] if averages and self.published else [])]


def best_published(suite: Suite, requested: Sequence[str]) -> tuple[str, ...]:
    """Return the papers' columns to show: those requested, else those with the highest averages."""
    if requested:
        return tuple(requested)
    printed = suite.total.printed or {
        model: suite.total.of({b.name: b.published_score(model) for b in suite.benchmarks}) or 0.0
        for model in suite.models
    }
    return tuple(sorted(printed, key=lambda model: -printed[model])[:PUBLISHED_SHOWN])


def markdown(board: Scoreboard) -> str:
    """Return the table and its footnotes as Markdown."""
    return "\n".join([text_table.markdown(board.columns(), list(board.rows())), *(f"{n}\n" for n in board.footnotes())])


def latex(board: Scoreboard) -> str:
    """Return the table as LaTeX (booktabs), with the footnotes as comments for the caption."""
    columns = board.columns()
    *rows, last = [_tex_row(row) for row in board.rows()]
    return "\n".join(
        [
            *(f"% {note}" for note in board.footnotes()),
            rf"\begin{{tabular}}{{ll{'r' * (len(columns) - 2)}}}",
            r"\toprule",
            _tex_row(columns),
            r"\midrule",
            *rows,
            r"\midrule",
            last,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


_TEX = str.maketrans(
    {character: "\\" + character for character in "&%_#${}"}
    | {"±": r"$\pm$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
)


def _tex_row(cells: Sequence[str]) -> str:
    return " & ".join(cell.translate(_TEX) for cell in cells) + r" \\"


def _share_in_percent(score: float | None, reference: float | None) -> float | None:
    share = share_of(score, reference)
    return None if share is None else 100 * share


def _percent(kept: float | None) -> str:
    return "-" if kept is None else f"{kept:.1f}"
