"""The named benchmarks of the papers, from suites/*.toml: what they count, how they score, what was published.

Nothing here needs torch.
All counts, hyperparameters and scores are the papers' own; scores are in percent, as printed.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from biosqueeze import registry
from biosqueeze.errors import UsageError
from biosqueeze.progress import warn

if TYPE_CHECKING:
    from biosqueeze.tasks import Dataset

DIRECTORY = Path(__file__).parent / "suites"
WHOLE = "all"  # the count of all splits together, where the paper gives no other
_NO_DATA = ("readme", "license", "licence", "changelog", ".")


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """How the paper fine-tunes, for base models; several rates or batch sizes are a grid, chosen from on dev."""

    learning_rates: tuple[float, ...]
    batch_sizes: tuple[int, ...]
    epochs: float | None = None  # the most that are trained, the best on dev being kept; None where it is not said
    epochs_from: float | None = None  # the fewest in the paper's grid
    max_length: int | None = None  # None where it is not said
    warmup: float | None = None  # share of the steps
    dropout: float | None = None
    runs: int = 1  # with different seeds
    reported: str = ""  # what the published score is of these runs
    note: str = ""


@dataclass(frozen=True)
class Published:
    """One row of a paper's table, in percent, by model."""

    metric: str  # key of the kind's `score`
    scores: Mapping[str, float]
    setting: str = ""  # what sets it apart from the benchmark's other rows


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One data set as one paper uses it."""

    suite: str
    name: str
    title: str  # as the paper calls it
    kind: str  # of task
    metric: str  # key of the kind's `score`
    paper_metric: str
    group: str  # task type, for averages
    licence: str
    access: str  # open | registration | agreement
    sources: tuple[str, ...]
    folders: tuple[str, ...]  # where to look under a root, first match wins; case, - and _ do not count
    hyper: Hyperparameters
    published: tuple[Published, ...]
    unit: str = ""  # what `counts` counts: one of UNITS
    counts: Mapping[str, int] = field(default_factory=dict)  # by split, or WHOLE
    formulation: Mapping[str, Any] = field(default_factory=dict)  # fields of a Formulation that the paper sets
    folds: int = 0  # of a cross-validated set, in sub-directories 1, 2, ...
    note: str = ""

    @property
    def key(self) -> str:
        """What a command line calls it."""
        return f"{self.suite}/{self.name}"

    def published_score(self, model: str) -> float:
        """The published score of a model in the benchmark's metric; of several settings the last, the plain one."""
        return next(row.scores[model] for row in reversed(self.published) if row.metric == self.metric)

    def mean_row(self, model: str) -> float:
        """The mean of a model's rows, which is what the papers' averages take of a benchmark that has several."""
        return fmean(row.scores[model] for row in self.published)


@dataclass(frozen=True)
class Average:
    """A mean over benchmarks: plain, or first within each group and then over the groups."""

    name: str
    groups: tuple[tuple[str, ...], ...]  # names of benchmarks; one group for a plain mean
    printed: Mapping[str, float]  # by model; empty where the paper prints none

    def of(self, scores: Mapping[str, float]) -> float | None:
        """The mean over those benchmarks that have a score, or None where none has; `missing` says if it is partial."""
        means = [fmean(have) for group in self.groups if (have := [scores[name] for name in group if name in scores])]
        return fmean(means) if means else None

    def missing(self, scores: Mapping[str, float]) -> tuple[str, ...]:
        """The benchmarks of this average that have no score."""
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
    headline: str  # the average that stands for the whole

    @property
    def path(self) -> Path:
        """The file that it is read from."""
        return DIRECTORY / f"{self.name}.toml"

    @property
    def total(self) -> Average:
        """The average that stands for the whole."""
        return next(average for average in self.averages if average.name == self.headline)

    def __getitem__(self, name: str) -> Benchmark:
        """The benchmark of that name."""
        return next(benchmark for benchmark in self.benchmarks if benchmark.name == name)


def names() -> tuple[str, ...]:
    """The suites."""
    return tuple(sorted(path.stem for path in DIRECTORY.glob("*.toml")))


@cache
def load_suite(name: str) -> Suite:
    """A suite by name.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in names():
        raise UsageError(f"there is no suite {name!r}.{registry.closest(name, names())} Known: {', '.join(names())}")
    table = tomllib.loads((DIRECTORY / f"{name}.toml").read_text(encoding="utf-8"))
    models = tuple(table["models"])
    benchmarks = tuple(_benchmark(row, name, models, table["defaults"]) for row in table["benchmarks"])
    return Suite(
        **{key: table[key] for key in ("name", "title", "paper", "url", "headline")},
        models=models,
        benchmarks=benchmarks,
        averages=tuple(_average(row, benchmarks, models) for row in table["averages"]),
    )


def find(key: str) -> Benchmark:
    """A benchmark by SUITE/NAME.

    Raises:
        UsageError: there is none; the message names the nearest.
    """
    suite, _, name = key.partition("/")
    known = {benchmark.name: benchmark for benchmark in load_suite(suite).benchmarks}
    if name not in known:
        near = registry.closest(key, [benchmark.key for benchmark in known.values()])
        raise UsageError(f"{suite} has no benchmark {name!r}.{near} Known: {', '.join(known)}")
    return known[name]


def resolve(task: str) -> tuple[str, Benchmark | None]:
    """The kind that a --task names, and the benchmark if it names one.

    Raises:
        UsageError: it is neither a kind nor a benchmark; the message names the nearest.
    """
    if "/" in task:
        benchmark = find(task)
        return benchmark.kind, benchmark
    kinds = registry.names("tasks")
    if task not in kinds:
        near = _same_name(task) or registry.closest(task, [*kinds, *_keys()])
        raise UsageError(
            f"there is no task {task!r}.{near} Kinds: {', '.join(kinds)}; named benchmarks: biosqueeze tasks"
        )
    return task, None


def locate(benchmark: Benchmark, root: Path) -> Path | None:
    """The benchmark's directory under a root, or None: the first of its folders that is there and holds files."""
    for folder in (*benchmark.folders, benchmark.name):
        for parent in (root / benchmark.suite, root):
            for found in _below(parent, folder.split("/")):
                if _holds_data(found, benchmark.folds):
                    return found
    return None


def check_counts(benchmark: Benchmark, counts: Mapping[str, int]) -> list[str]:
    """Where the counts of a data set differ from the paper's, and by how much.

    Args:
        benchmark: its `unit` says what is counted.
        counts: by split, as `count` gives them. Splits that are not there are not compared; all together are only
            where test is among them.
    """
    have = {**counts, **({WHOLE: sum(counts.values())} if {"train", "test"} <= counts.keys() else {})}
    return [
        _difference(split, have[split], wanted, benchmark.unit)
        for split, wanted in benchmark.counts.items()
        if split in have and have[split] != wanted
    ]


def count(dataset: "Dataset", unit: str, negative: str | None = None) -> dict[str, int]:
    """How many of a unit each split holds.

    Args:
        dataset: as a kind reads it.
        unit: one of UNITS.
        negative: the label that means no relation; recognised if left out.
    """
    if unit == "relations":
        from biosqueeze.tasks.readers.relations import negative_of

        none = negative_of(dataset.labels, negative)
        return {split: sum(e.gold != none for e in examples) for split, examples in dataset.splits.items()}
    return {split: sum(map(_OF_EACH[unit], examples)) for split, examples in dataset.splits.items()}


def warn_of_counts(benchmark: Benchmark, dataset: "Dataset", negative: str | None = None) -> list[str]:
    """Count a data set, and warn of every difference from the paper's counts; the differences are returned."""
    differences = check_counts(benchmark, count(dataset, benchmark.unit, negative)) if benchmark.counts else []
    for difference in differences:
        warn(f"{benchmark.key}: {difference}" + (f"; {benchmark.note}" if benchmark.note else ""))
    return differences


def _entities(example: Any) -> int:
    from biosqueeze.tasks.encoding.tag_schemes import spans_of

    return len(spans_of(example.gold))


def _words(example: Any) -> int:
    return sum(tag != "O" for tag in example.gold)


def _one(_example: Any) -> int:
    return 1


_OF_EACH: Mapping[str, Callable[[Any], int]] = {
    "entities": _entities,
    "words": _words,  # inside of PICO elements
    "sentences": _one,
    "examples": _one,
}
UNITS = (*_OF_EACH, "relations")  # the last are examples whose label is not the one that means no relation


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


def _keys() -> list[str]:
    return [benchmark.key for name in names() for benchmark in load_suite(name).benchmarks]


def _same_name(task: str) -> str:
    """The benchmarks that have this name in some suite, as a hint."""
    same = [key for key in _keys() if _plain(key.partition("/")[2]) == _plain(task)]
    return f" Did you mean {' or '.join(map(repr, same))}?" if same else ""


def _plain(name: str) -> str:
    return name.casefold().replace("-", "").replace("_", "").replace(" ", "")


def _below(parent: Path, parts: list[str]) -> Iterable[Path]:
    """The directories under a parent that a folder's name fits."""
    if not parts:
        return [parent]
    if not parent.is_dir():
        return []
    fitting = sorted(path for path in parent.iterdir() if path.is_dir() and _plain(path.name) == _plain(parts[0]))
    return [found for path in fitting for found in _below(path, parts[1:])]


def _holds_data(directory: Path, folds: int) -> bool:
    if folds and (directory / "1").is_dir():
        return True
    return any(path.is_file() and not path.name.casefold().startswith(_NO_DATA) for path in directory.iterdir())


def _difference(split: str, found: int, wanted: int, unit: str) -> str:
    where = "the data have" if split == WHOLE else f"{split} has"
    gap = found - wanted
    return (
        f"{where} {found:,} {unit} where the paper counts {wanted:,} "
        f"({abs(gap):,} {'more' if gap > 0 else 'fewer'}, {abs(gap) / wanted:.1%})"
    )
