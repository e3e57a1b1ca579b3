"""The named benchmarks of the papers, from suites/*.toml: counts, metrics, hyperparameters, published scores.

All numbers are the papers' own; scores are in percent, as printed. Torch-free.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from biosqueeze import registry
from biosqueeze.errors import UsageError
from biosqueeze.suggestions import plain_name

DIRECTORY = Path(__file__).parent / "suites"
ALL_SPLITS = "all"  # the key of the count of all splits together, where the paper has no other count


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """The paper's fine-tuning of base models; several rates or batch sizes are a grid that is searched on dev."""

    learning_rates: tuple[float, ...]
    batch_sizes: tuple[int, ...]
    epochs: float | None = None  # maximum, with the best epoch on dev selected; None if not reported
    epochs_from: float | None = None  # minimum in the paper's grid
    max_length: int | None = None  # None if not reported
    warmup: float | None = None  # share of the steps
    dropout: float | None = None
    eval_every: int | None = None  # steps between two evaluations on dev; None: one after each epoch
    patience: int | None = None  # evaluations without a better score after which a run stops early
    runs: int = 1  # with different seeds
    reported: str = ""  # the statistic of these runs that is published
    note: str = ""

    @property
    def statistic(self) -> Literal["mean", "median"]:
        """The statistic of the runs that is compared with the paper's."""
        return "median" if self.reported.startswith("median") else "mean"


@dataclass(frozen=True)
class Published:
    """One row of a paper's table, in percent, by model."""

    metric: str  # key of the kind's `score`
    scores: Mapping[str, float]
    setting: str = ""  # the difference from the benchmark's other rows


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One data set as one paper uses it."""

    suite: str
    name: str
    title: str  # the paper's name
    kind: str  # of task
    metric: str  # key of the kind's `score`
    paper_metric: str
    group: str  # task type, for averages
    licence: str
    access: str  # open | registration | agreement
    sources: tuple[str, ...]
    folders: tuple[str, ...]  # directories under a root; the first match is used; case, - and _ do not count
    hyper: Hyperparameters
    published: tuple[Published, ...]
    unit: str = ""  # what `counts` counts: one of counts.UNITS
    counts: Mapping[str, int] = field(default_factory=dict)  # by split, or ALL_SPLITS
    formulation: Mapping[str, Any] = field(default_factory=dict)  # fields of the paper's Formulation
    folds: int = 0  # number of cross-validation folds, in sub-directories 1, 2, ...
    folds_used: int = 0  # the first of them; 0: all
    folds_to_choose: int = 0  # the first of them: hyperparameters are chosen on these, and no score is reported
    published_on: str = ""  # the split of the published scores, where it is not test
    note: str = ""

    @property
    def key(self) -> str:
        """The name for --task: SUITE/NAME."""
        return f"{self.suite}/{self.name}"

    def published_score(self, model: str) -> float:
        """Return a model's published score in the benchmark's metric; of several settings the last, the plain one."""
        return next(row.scores[model] for row in reversed(self.published) if row.metric == self.metric)


@dataclass(frozen=True)
class Average:
    """A mean over benchmarks: plain, or of the means of groups."""

    name: str
    groups: tuple[tuple[str, ...], ...]  # names of benchmarks; one group for a plain mean
    printed: Mapping[str, float]  # by model; empty if the paper has none

    def of(self, scores: Mapping[str, float]) -> float | None:
        """Return the mean over the benchmarks with a score, None without any; see `missing` for the others."""
        available = ([scores[name] for name in group if name in scores] for group in self.groups)
        means = [fmean(values) for values in available if values]
        return fmean(means) if means else None

    def missing(self, scores: Mapping[str, float]) -> tuple[str, ...]:
        """Return the benchmarks of this average without a score."""
        return tuple(name for group in self.groups for name in group if name not in scores)


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The benchmarks of one paper."""

    name: str
    title: str
    paper: str
    url: str
    models: tuple[str, ...]  # the published columns
    benchmarks: tuple[Benchmark, ...]
    averages: tuple[Average, ...]
    headline: str  # name of the main average

    @property
    def path(self) -> Path:
        """The TOML file of the suite."""
        return DIRECTORY / f"{self.name}.toml"

    @property
    def total(self) -> Average:
        """The main average."""
        return next(average for average in self.averages if average.name == self.headline)

    def __getitem__(self, name: str) -> Benchmark:
        """Return the benchmark of this name."""
        return next(benchmark for benchmark in self.benchmarks if benchmark.name == name)


def suite_names() -> tuple[str, ...]:
    """Return the names of all suites."""
    return tuple(sorted(path.stem for path in DIRECTORY.glob("*.toml")))


@cache
def load_suite(name: str) -> Suite:
    """Return a suite by name.

    Raises:
        UsageError: there is no such suite.
    """
    known = suite_names()
    if name not in known:
        raise UsageError(f"there is no suite {name!r}.{registry.closest(name, known)} Known: {', '.join(known)}")
    table = tomllib.loads((DIRECTORY / f"{name}.toml").read_text(encoding="utf-8"))
    models = tuple(table["models"])
    benchmarks = tuple(_benchmark(row, name, models, table["defaults"]) for row in table["benchmarks"])
    return Suite(
        **{key: table[key] for key in ("name", "title", "paper", "url", "headline")},
        models=models,
        benchmarks=benchmarks,
        averages=tuple(_average(row, benchmarks, models) for row in table["averages"]),
    )


def find_benchmark(key: str) -> Benchmark:
    """Return a benchmark by SUITE/NAME.

    Raises:
        UsageError: there is no such benchmark; the message names the nearest.
    """
    suite, _, name = key.partition("/")
    known = {benchmark.name: benchmark for benchmark in load_suite(suite).benchmarks}
    if name not in known:
        near = registry.closest(key, [benchmark.key for benchmark in known.values()])
        raise UsageError(f"{suite} has no benchmark {name!r}.{near} Known: {', '.join(known)}")
    return known[name]


def resolve_task(task: str) -> tuple[str, Benchmark | None]:
    """Return the kind of a --task, and the benchmark if it names one.

    Raises:
        UsageError: the task is neither a kind nor a benchmark; the message names the nearest.
    """
    if "/" in task:
        benchmark = find_benchmark(task)
        return benchmark.kind, benchmark
    kinds = registry.names("tasks")
    if task not in kinds:
        near = _benchmarks_called(task) or registry.closest(task, [*kinds, *_keys()])
        raise UsageError(
            f"there is no task {task!r}.{near} Kinds: {', '.join(kinds)}; named benchmarks: biosqueeze tasks"
        )
    return task, None


def _benchmark(row: Mapping[str, Any], suite: str, models: tuple[str, ...], defaults: Mapping[str, Any]) -> Benchmark:
    fields = {key: _frozen(value) for key, value in row.items() if key not in ("hyper", "published", "scores")}
    rows = row.get("published") or [{"metric": row["metric"], "scores": row["scores"]}]
    hyper = {key: _frozen(value) for key, value in {**defaults, **row.get("hyper", {})}.items()}
    published = tuple(replace(Published(**r), scores=_by_model(r["scores"], models)) for r in rows)
    return Benchmark(suite=suite, hyper=Hyperparameters(**hyper), published=published, **fields)


def _average(row: Mapping[str, Any], benchmarks: Iterable[Benchmark], models: tuple[str, ...]) -> Average:
    groups: dict[str, list[str]] = {}
    for benchmark in benchmarks:
        named = benchmark.name in row.get("benchmarks", [benchmark.name])
        if named and benchmark.group in row.get("groups", [benchmark.group]):
            groups.setdefault(benchmark.group if row["over"] == "groups" else "", []).append(benchmark.name)
    printed = _by_model(row["printed"], models) if "printed" in row else {}
    return Average(row["name"], tuple(map(tuple, groups.values())), printed)


def _by_model(scores: Iterable[float], models: tuple[str, ...]) -> dict[str, float]:
    return dict(zip(models, scores, strict=True))


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def task_names() -> list[str]:
    """Return the values of --task: kinds, then named benchmarks."""
    return [*registry.names("tasks"), *_keys()]


def _keys() -> list[str]:
    return [benchmark.key for name in suite_names() for benchmark in load_suite(name).benchmarks]


def _benchmarks_called(task: str) -> str:
    """Return a hint at the benchmarks with this name in any suite, "" without any."""
    same = [key for key in _keys() if plain_name(key.partition("/")[2]) == plain_name(task)]
    return f" Did you mean {' or '.join(map(repr, same))}?" if same else ""
