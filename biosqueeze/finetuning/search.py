"""Hyperparameter search: select on dev over grids, seeds and folds. The test split has no influence. Torch-free."""

import itertools
import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.files import content_hash, read_json, write_json
from biosqueeze.finetuning.grid import GridPoint, format_value
from biosqueeze.finetuning.runs import FineTuningRun, RunResult, best_of_groups, execute
from biosqueeze.progress import note, table, warn

_Finished = tuple[FineTuningRun, RunResult]


@dataclass(frozen=True)
class SearchPlan:
    """The runs of a search: shared options, points of the grid, seeds and folds.

    All are compared on one dev split: --dev-share is drawn with the first seed.
    """

    checkpoint: str
    directory: Path  # of the runs
    shared: GridPoint
    points: Sequence[GridPoint]
    seeds: Sequence[int]
    folds: Sequence[str] = ()  # data directories; without folds, `shared` has the data

    def runs(self) -> Iterator[FineTuningRun]:
        """Yield all runs, those of one point together."""
        for point, (data, fold), seed in itertools.product(self.points, self._folds(), self.seeds):
            options = {**self.shared, **data, **point, "seed": seed}
            words = [*(f"{k.replace('_', '-')}={format_value(v)}" for k, v in point.items()), *([fold] if fold else [])]
            name = ", ".join([*words, f"seed={seed}"])
            path = self.directory.joinpath(*(word.replace("/", "-") for word in words), f"seed-{seed}")
            group = ", ".join(words)
            yield FineTuningRun(name, self.checkpoint, path, options, group=group, test=False, split_seed=self.seeds[0])

    def _folds(self) -> list[tuple[GridPoint, str]]:
        return [({"data": fold}, f"fold-{Path(fold).name}") for fold in self.folds] or [({}, "")]

    def prepare_directory(self, source: Checkpoint, *, force: bool) -> None:
        """Create the directory of the runs.

        With `force`, the runs of another search are removed; those of an interrupted search with this same plan are
        kept, because --force is about the output.
        """
        named = self.folds or ([str(self.shared["data"])] if "data" in self.shared else [])
        data = [content_hash(path) for path in (Path(name).expanduser() for name in named) if path.exists()]
        identity = {"plan": repr(self), "weights": source.weights_sha256(), "data": data}
        if force and (not self._begun.is_file() or read_json(self._begun) != identity):
            shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self._begun.is_file():  # an existing file describes the runs in the directory, so it is kept
            write_json(self._begun, identity)

    @property
    def _begun(self) -> Path:
        return self.directory / "search.json"

    def remove_directory(self) -> None:
        """Remove the runs; where this is cut short, the same search starts over and takes none of the rest."""
        self._begun.unlink()
        shutil.rmtree(self.directory)


@dataclass(frozen=True)
class SearchResult:
    """The selected run, and a table of all runs."""

    best: FineTuningRun  # of the point with the best mean, the run that is best on dev
    metric: str
    points: Sequence[Mapping[str, Any]]  # one row for each: options, mean and deviation on dev
    runs: Sequence[Mapping[str, Any]]  # one row for each run
    folds: Mapping[str, Any] | None = None  # test scores of the selected run of each fold

    def as_dict(self) -> dict[str, Any]:
        """Return the content of results/search.json."""
        content: dict[str, Any] = {"metric": self.metric, "chosen": self.best.name}
        content |= {"points": list(self.points), "runs": list(self.runs)}
        return content | ({"folds": dict(self.folds)} if self.folds else {})


def search(plan: SearchPlan, jobs: int | None) -> SearchResult:
    """Do all runs; select the point with the best mean on dev, and of its runs the best on dev.

    With folds, the best run of each fold at the selected point is evaluated on the test split of that fold, once.
    """
    runs = list(plan.runs())
    finished = list(zip(runs, execute(runs, jobs=jobs, keep="best"), strict=True))
    size = len(finished) // len(plan.points)
    by_point = [finished[start : start + size] for start in range(0, len(finished), size)]
    rows = [_point_row(point, pairs) for point, pairs in zip(plan.points, by_point, strict=True)]
    selected = by_point[max(range(len(rows)), key=lambda number: rows[number]["mean"])]
    best = max(selected, key=lambda pair: pair[1].dev_score)[0]
    metric = finished[0][1].metric
    run_rows = [{"run": run.name, **dict(run.options), **dict(result.dev)} for run, result in finished]
    _show(rows, metric)
    _warn_of_kept_starts(finished)
    return SearchResult(best, metric, rows, run_rows, _score_folds(selected, metric, jobs) if plan.folds else None)


def _warn_of_kept_starts(finished: Sequence[_Finished]) -> None:
    names = [run.name for run, result in finished if result.dev.get("best_step") == 0]
    if names:
        warn(
            f"{len(names)} of {len(finished)} runs have the score of the checkpoint as it was, because no step scored "
            f"as high on dev: {'; '.join(names)}. Lower learning rates or longer trainings may help"
        )


def _point_row(point: GridPoint, finished: Sequence[_Finished]) -> dict[str, Any]:
    scores = [result.dev_score for _, result in finished]
    minutes = sum(result.seconds for _, result in finished) / 60
    return {**point, **spread(scores), "minutes": round(minutes, 2)}


def spread(scores: Sequence[float]) -> dict[str, Any]:
    """Return mean, median, sample standard deviation (0 of a single score) and count."""
    deviation = statistics.stdev(scores) if len(scores) > 1 else 0.0
    return {
        "mean": statistics.fmean(scores),
        "median": statistics.median(scores),
        "deviation": deviation,
        "runs": len(scores),
    }


def _score_folds(finished: Sequence[_Finished], metric: str, jobs: int | None) -> dict[str, Any]:
    """Return the test scores of the best run of each fold; None where the test split does not have that score."""
    runs, results = zip(*finished, strict=True)
    winners = [replace(runs[number], test=True) for number in best_of_groups(runs, dict(enumerate(results)))]
    every = [r.test["metrics"].get(metric) for r in execute(winners, jobs=jobs, keep="best") if r.test]
    scores = [score for score in every if score is not None]
    if len(scores) < len(every):
        note(f"{len(every) - len(scores)} of {len(every)} folds have no {metric} on test, and are left out of the mean")
    if not scores:
        return {"test": every}
    summary = {"test": every, **spread(scores)}
    note(f"test {metric} over {len(scores)} folds: mean {summary['mean']:.4f}, median {summary['median']:.4f}")
    return summary


def _show(rows: Sequence[Mapping[str, Any]], metric: str) -> None:
    names = [name for name in rows[0] if name not in ("mean", "median", "deviation", "runs", "minutes")]
    cells = [
        [
            *(format_value(row[n]) for n in names),
            f"{row['mean']:.4f}",
            f"{row['deviation']:.4f}",
            row["runs"],
            f"{row['minutes']:.1f}",
        ]
        for row in sorted(rows, key=lambda row: -row["mean"])
    ]
    columns = [*(name.replace("_", "-") for name in names), f"dev {metric}", "deviation", "runs", "minutes"]
    table("Best first", columns, cells)
