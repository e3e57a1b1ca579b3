"""Hyperparameters are chosen on dev, over grids, seeds and folds; the test split is not looked at for that."""

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from biosqueeze.errors import UsageError
from biosqueeze.options import OptionField
from biosqueeze.progress import note, table
from biosqueeze.registry import closest
from biosqueeze.runs import FineTuningRun, RunResult, execute

Point = Mapping[str, Any]  # options by field name


def parse_grid(asked: Sequence[str], fields: Mapping[str, OptionField]) -> list[Point]:
    """All combinations of what is asked for: ["lr=1e-5,3e-5", "batch=8,16"] gives four points.

    Args:
        asked: NAME=VALUE,VALUE,...; a name may be cut short as long as it fits one option only.
        fields: the options that there are, by name.

    Raises:
        UsageError: there is no such option, or a value is none of its type or comes twice.
    """
    axes: dict[str, list[Any]] = {}
    for text in asked:
        name, equals, values = text.partition("=")
        if not equals or not all(values.split(",")):
            raise UsageError(f"--grid {text!r} does not read NAME=VALUE,VALUE, like lr=1e-5,3e-5")
        found = find_option(name, fields, "--grid")
        if found.name in axes:
            raise UsageError(f"--grid: {found.name} is given twice; say all its values in one: {name}=A,B,C")
        axes[found.name] = _axis(name, values.split(","), found)
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _axis(name: str, texts: Sequence[str], option: OptionField) -> list[Any]:
    """The values of one option; the same one twice (3e-5 and 0.00003) would be trained twice and found nowhere."""
    said: dict[Any, str] = {}
    for text in texts:
        value = parse_value(text, option, "--grid")
        if value in said:
            raise UsageError(f"--grid: {name}={text} is the same as {name}={said[value]}; leave one of them out")
        said[value] = text
    return list(said)


def find_option(name: str, fields: Mapping[str, OptionField], flag: str) -> OptionField:
    """The option that a name, perhaps cut short, stands for.

    Raises:
        UsageError: it stands for none, or for several.
    """
    plain = name.strip().lstrip("-").replace("-", "_")
    fit = [plain] if plain in fields else [known for known in fields if plain and known.startswith(plain)]
    if len(fit) != 1:
        shown = ", ".join(sorted(known.replace("_", "-") for known in fit or fields))
        raise UsageError(
            f"{flag}: {name!r} is {'short for several options' if fit else 'no option'}."
            f"{closest(plain, fields)} {'They are' if fit else 'Known'}: {shown}"
        )
    return fields[fit[0]]


def parse_value(value: str, option: OptionField, flag: str) -> Any:
    """A value as the option holds it: of its type, and where the option may be repeated, as a tuple of one.

    Raises:
        UsageError: it is none of that type, or none of the option's choices.
    """
    one = _parse_one(value, option, flag)
    return (one,) if option.repeated else one


def _parse_one(value: str, option: OptionField, flag: str) -> Any:
    if option.literals and value not in option.literals:
        raise UsageError(f"{flag}: {option.name}={value} is none of {', '.join(option.literals)}")
    if option.type is bool:
        if value not in ("true", "false"):
            raise UsageError(f"{flag}: {option.name} is true or false, not {value}")
        return value == "true"
    try:
        return option.type(value)
    except ValueError as error:
        raise UsageError(f"{flag}: {option.name}={value} is no {option.type.__name__}") from error


def format_value(value: Any) -> str:
    """A value for people and in names of directories: that of a repeatable option without its brackets."""
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True)
class SearchPlan:
    """What is searched: the options that all runs share, the points of the grid, seeds and folds."""

    checkpoint: str
    directory: Path  # where the runs go
    shared: Point
    points: Sequence[Point]
    seeds: Sequence[int]
    folds: Sequence[str] = ()  # data directories; where there are none, the data stand in `shared`

    def runs(self) -> Iterator[FineTuningRun]:
        """All runs, those of one point together."""
        for point, (place, fold), seed in itertools.product(self.points, self._places(), self.seeds):
            options = {**self.shared, **place, **point, "seed": seed}
            words = [*(f"{k.replace('_', '-')}={format_value(v)}" for k, v in point.items()), *([fold] if fold else [])]
            name = ", ".join([*words, f"seed={seed}"])
            path = self.directory.joinpath(*(word.replace("/", "-") for word in words), f"seed-{seed}")
            yield FineTuningRun(name, self.checkpoint, path, options, group=", ".join(words), test=False)

    def _places(self) -> list[tuple[Point, str]]:
        return [({"data": fold}, f"fold-{Path(fold).name}") for fold in self.folds] or [({}, "")]

    def point_of(self, run: FineTuningRun) -> int:
        """Which point of the grid a run belongs to."""
        return next(i for i, p in enumerate(self.points) if all(run.options[name] == p[name] for name in p))


@dataclass(frozen=True)
class SearchResult:
    """What a search came to."""

    best: FineTuningRun  # of the best point, the run that is best on dev
    metric: str
    points: Sequence[Mapping[str, Any]]  # one row for each: options, mean and deviation on dev
    runs: Sequence[Mapping[str, Any]]  # one row for each run
    folds: Mapping[str, Any] | None = None  # test scores over the folds, each looked at once

    def as_dict(self) -> dict[str, Any]:
        """For results/search.json."""
        told: dict[str, Any] = {"metric": self.metric, "chosen": self.best.name}
        told |= {"points": list(self.points), "runs": list(self.runs)}
        return told | ({"folds": dict(self.folds)} if self.folds else {})


def search(plan: SearchPlan, jobs: int | None) -> SearchResult:
    """Do all runs; the point with the best mean on dev is chosen, and of its runs the best on dev.

    With folds, the chosen point's best run of each fold is scored on that fold's test split, once.
    """
    runs = list(plan.runs())
    results = execute(runs, jobs=jobs, keep="best")
    rows = [_point_row(plan, number, runs, results) for number in range(len(plan.points))]
    chosen = max(range(len(rows)), key=lambda number: rows[number]["mean"])
    mine = [(run, result) for run, result in zip(runs, results, strict=True) if plan.point_of(run) == chosen]
    best = max(mine, key=lambda pair: pair[1].dev_score)[0]
    metric = results[0].metric
    told = [{"run": r.name, **dict(r.options), **dict(x.dev)} for r, x in zip(runs, results, strict=True)]
    _show(rows, metric)
    return SearchResult(best, metric, rows, told, _score_folds(mine, metric, jobs) if plan.folds else None)


def _point_row(
    plan: SearchPlan, number: int, runs: Sequence[FineTuningRun], results: Sequence[RunResult]
) -> dict[str, Any]:
    mine = [result for run, result in zip(runs, results, strict=True) if plan.point_of(run) == number]
    scores = [result.dev_score for result in mine]
    return {**plan.points[number], **spread(scores), "minutes": round(sum(r.seconds for r in mine) / 60, 2)}


def spread(scores: Sequence[float]) -> dict[str, Any]:
    """Mean, median, sample standard deviation (0 of a single one) and count."""
    deviation = statistics.stdev(scores) if len(scores) > 1 else 0.0
    return {
        "mean": statistics.fmean(scores),
        "median": statistics.median(scores),
        "deviation": deviation,
        "runs": len(scores),
    }


def _score_folds(mine: Sequence[tuple[FineTuningRun, RunResult]], metric: str, jobs: int | None) -> dict[str, Any]:
    """Test scores of each fold's best run."""
    best: dict[str, tuple[FineTuningRun, RunResult]] = {}
    for run, result in mine:
        if run.group not in best or result.dev_score > best[run.group][1].dev_score:
            best[run.group] = (run, result)
    winners = [replace(run, test=True) for run, _ in best.values()]
    tests = [r.test["metrics"].get(metric, 0.0) for r in execute(winners, jobs=jobs, keep="all") if r.test]
    told = {"test": tests, **spread(tests)}
    note(f"test {metric} over {len(tests)} folds: mean {told['mean']:.4f}, median {told['median']:.4f}")
    return told


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
