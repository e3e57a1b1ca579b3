"""The fine-tunings of a benchmark suite: the data on disk, the papers' hyperparameters, one run per seed and fold."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from biosqueeze import registry
from biosqueeze.benchmarks.counts import warn_of_counts
from biosqueeze.benchmarks.directories import locate
from biosqueeze.benchmarks.suite import Benchmark, Hyperparameters, Suite
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.data.output_types import OutputType
from biosqueeze.data.records.splits import folds
from biosqueeze.data.sampling import hold_out
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.finetuning.grid import GridPoint, find_option, format_value, parse_grid, parse_value
from biosqueeze.finetuning.options import FineTuningOptions
from biosqueeze.finetuning.runs import FineTuningRun
from biosqueeze.options import OptionField
from biosqueeze.progress import warn
from biosqueeze.tasks import Task, open_task
from biosqueeze.tasks.formulation import Formulation

EPOCHS = 20.0  # where the paper does not say; the best epoch on dev is kept
PAPER_GRID = "paper"  # --grid paper
DEV_SHARE = 0.1  # of train, where a benchmark has no dev split

Overrides = Mapping[str, Mapping[str, Any]]  # option values by field name, by benchmark; "" is all benchmarks


@dataclass(frozen=True)
class DataFacts:
    """What the data of a benchmark are like."""

    note: str  # how they differ from those of the paper, and what is held out
    examples: int  # to train on; of folds the fewest
    output_type: OutputType


@dataclass(frozen=True)
class BenchmarkFineTuning:
    """One benchmark with its data, and the options of its fine-tuning."""

    benchmark: Benchmark
    data: Path
    options: Mapping[str, Any]
    data_facts: DataFacts
    folds: tuple[Path, ...] = ()

    @property
    def directories(self) -> tuple[Path, ...]:
        """Return the folds, or the one directory of the data."""
        return self.folds or (self.data,)


def parse_overrides(
    texts: Sequence[str], benchmarks: Sequence[str], options: Mapping[str, OptionField]
) -> dict[str, dict[str, Any]]:
    """Parse --set [BENCHMARK.]OPTION=VALUE.

    Args:
        texts: as given.
        benchmarks: names of the suite's benchmarks.
        options: of finetune that may be set, by field name.

    Raises:
        UsageError: a text is malformed, names no benchmark or option, or sets the same option twice.
    """
    overrides: dict[str, dict[str, Any]] = {}
    for text in texts:
        name, equals, value_text = text.partition("=")
        benchmark, _, option_name = name.rpartition(".")
        if not equals or (benchmark and benchmark not in benchmarks):
            near = registry.closest(benchmark, benchmarks)
            raise UsageError(
                f"--set {text!r} is not of the form [BENCHMARK.]OPTION=VALUE, like ncbi-disease.lr=5e-5.{near}"
            )
        option = find_option(option_name, options, "--set")
        values, value = overrides.setdefault(benchmark, {}), parse_value(value_text, option, "--set")
        if option.name in values and not option.repeated:
            raise UsageError(f"--set {name} is given twice, and takes one value")
        values[option.name] = (*values.get(option.name, ()), *value) if option.repeated else value
    return overrides


def find_benchmarks(
    suite: Suite, root: Path, only: Sequence[str], overrides: Overrides
) -> tuple[tuple[BenchmarkFineTuning, ...], dict[str, str]]:
    """Return the benchmarks whose data are complete, and why the others are left out, by name.

    Args:
        suite: whose benchmarks are looked up.
        root: directory that has a folder for each benchmark.
        only: names of benchmarks; empty: all.
        overrides: see `parse_overrides`.

    Raises:
        SqueezeError: there is no such directory, or no benchmark that can be run.
        UsageError: the data of a benchmark do not have what --set names for it.
    """
    if not root.is_dir():
        raise SqueezeError(f"there is no directory {root}; give the one that has the folders of the benchmarks")
    found: list[BenchmarkFineTuning] = []
    absent: dict[str, str] = {}
    unfit: dict[str, str] = {}
    for benchmark in suite.benchmarks:
        if only and benchmark.name not in only:
            continue
        data = locate(benchmark, root)
        if data is None:
            absent[benchmark.name] = f"no {' or '.join(benchmark.folders)} under {root}"
            continue
        try:
            options = {**paper_options(benchmark), **overrides.get("", {}), **overrides.get(benchmark.name, {})}
            found.append(_check_data(benchmark, data, options))
        except SqueezeError as error:
            if isinstance(error, UsageError) and overrides.get(benchmark.name):
                raise UsageError(f"--set for {benchmark.name}: {error}") from error
            unfit[benchmark.name] = str(error)
            warn(f"{benchmark.title} is left out: {error}")
    if not found and unfit:
        raise SqueezeError(f"none of {suite.name}'s benchmarks under {root} can be run; the warnings say why")
    if not found:
        raise SqueezeError(
            f"none of {suite.name}'s benchmarks is under {root}: "
            f"`biosqueeze tasks {suite.name}` lists where to get them and how to name their folders"
        )
    return tuple(found), absent | unfit


def paper_options(benchmark: Benchmark) -> dict[str, Any]:
    """Return the paper's hyperparameters as options of finetune: the highest rate and the smallest batch of a grid."""
    hyper: Hyperparameters = benchmark.hyper
    # That of a classification depends on whether the data have one label or several for a text.
    default = None if benchmark.kind == "classification" else open_task(benchmark.kind).METRIC
    options = {
        "task": benchmark.kind,
        "metric": benchmark.metric if benchmark.metric != default else None,
        "lr": max(hyper.learning_rates),
        "batch_size": min(hyper.batch_sizes),
        "epochs": hyper.epochs or EPOCHS,
        "max_length": hyper.max_length,
        "warmup": hyper.warmup,
        "eval_every": hyper.eval_every,
        "patience": hyper.patience,
        **benchmark.formulation,
    }
    return {name: value for name, value in options.items() if value is not None}


def _check_data(benchmark: Benchmark, data: Path, options: Mapping[str, Any]) -> BenchmarkFineTuning:
    """Read all splits once, before anything is trained.

    Where there is no dev split (BioASQ, the folds of GAD and EU-ADR), a share of train is held out as dev.
    """
    parts = folds(data)[: benchmark.folds_used or None] if benchmark.folds else ()
    task, directories = _task_of(benchmark, options), parts or (data,)
    read = partial(_read_splits, benchmark, task, directories)
    if "dev_share" in options and not options.get("with_dev"):
        return BenchmarkFineTuning(benchmark, data, options, read(options, ("train", "test")), parts)
    if all("dev" in task.splits(str(directory)) for directory in directories):
        return BenchmarkFineTuning(benchmark, data, options, read(options, ("train", "dev", "test")), parts)
    held_out = {"dev_share": DEV_SHARE, **options}
    held_out.pop("with_dev", None)  # there is none to train on
    facts = read(held_out, ("train", "test"))
    said = f"there is no dev split, so {held_out['dev_share']:.0%} of train is held out as dev"
    warn(f"{benchmark.title}: {said}")
    facts = replace(facts, note="; ".join(filter(None, (facts.note, said))))
    return BenchmarkFineTuning(benchmark, data, held_out, facts, parts)


def _task_of(benchmark: Benchmark, options: Mapping[str, Any]) -> Task:
    known = {f.name for f in fields(Formulation)}
    formulation = {**benchmark.formulation, **{name: value for name, value in options.items() if name in known}}
    return open_task(benchmark.kind, Formulation(**formulation))


def _left_to_train(splits: Mapping[str, Sequence[Any]], options: Mapping[str, Any]) -> Sequence[Any]:
    """Return the examples of which --train-size draws: those that are not held out as dev."""
    pool = [*splits["train"], *(splits["dev"] if options.get("with_dev") else ())]
    return hold_out(pool, options["dev_share"], seed=0)[0] if options.get("dev_share") else pool


def _read_splits(
    benchmark: Benchmark, task: Task, directories: Sequence[Path], options: Mapping[str, Any], splits: Sequence[str]
) -> DataFacts:
    """Read these splits; return what the data are like."""
    data = [task.read(str(directory), splits) for directory in directories]
    # Of a cross-validated set the papers count the whole, not the folds.
    differences = (
        _warn_of_folds(benchmark, directories)
        if benchmark.folds
        else warn_of_counts(benchmark, data[0], options.get("negative"))
    )
    other_split = [f"the published scores are those of {benchmark.published_on}"] if benchmark.published_on else []
    examples = min(len(_left_to_train(each.splits, options)) for each in data)
    return DataFacts("; ".join([*differences, *other_split]), examples, data[0].output_type)


def _warn_of_folds(benchmark: Benchmark, directories: Sequence[Path]) -> list[str]:
    """Warn of folds that are missing; return the warning, if there is one.

    Args:
        benchmark: a cross-validated one.
        directories: of the folds that are used, or the one directory of data without folds.
    """
    used = [int(directory.name) for directory in directories if directory.name.isdecimal()]
    expected = range(1, (benchmark.folds_used or benchmark.folds) + 1)
    missing = [number for number in expected if number not in used]
    if not missing:
        return []
    said = f"folds missing: {', '.join(map(str, missing))}; used: {', '.join(map(str, used))}"
    if not used:
        said = f"a single division into train and test, where the paper has {benchmark.folds} folds"
    warn(f"{benchmark.title}: {said}")
    return [said]


def runs_of(
    checkpoint: Checkpoint, column: str, fine_tuning: BenchmarkFineTuning, seeds: int | None, out: Path
) -> Iterator[FineTuningRun]:
    """Yield one run for each seed and fold, except for the folds that hyperparameters are chosen on.

    Args:
        checkpoint: that is fine-tuned.
        column: its name in the table.
        fine_tuning: the benchmark.
        seeds: how many, from 0; None: as many as in the paper.
        out: directory of all runs.
    """
    place, name = _directory(checkpoint, fine_tuning, out), fine_tuning.benchmark.name
    for directory in fine_tuning.directories[fine_tuning.benchmark.folds_to_choose :] or fine_tuning.directories:
        fold = [f"fold-{directory.name}"] if fine_tuning.folds else []
        for seed in range(seeds or fine_tuning.benchmark.hyper.runs):
            yield FineTuningRun(
                ", ".join([column, name, *fold, f"seed {seed}"]),
                checkpoint.name,
                place.joinpath(*fold, f"seed-{seed}"),
                {"data": str(directory), **fine_tuning.options, "seed": seed},
                group=f"{column}, {name}",
            )


def grid_runs(
    checkpoint: Checkpoint, column: str, fine_tuning: BenchmarkFineTuning, points: Sequence[GridPoint], out: Path
) -> list[FineTuningRun]:
    """Return one run for each point of a grid, with seed 0 and on the first fold, scored on dev alone."""
    name, data = fine_tuning.benchmark.name, str(fine_tuning.directories[0])
    labels = [",".join(f"{option}={format_value(value)}" for option, value in point.items()) for point in points]
    return [
        FineTuningRun(
            f"{column}, {name}, {label}",
            checkpoint.name,
            _directory(checkpoint, fine_tuning, out).joinpath("grid", label),
            {"data": data, **fine_tuning.options, **point, "seed": 0},
            group=f"{column}, {name}, grid",
            test=False,
        )
        for point, label in zip(points, labels, strict=True)
    ]


def grid_points(axes: Sequence[str], benchmark: Benchmark, options: Mapping[str, OptionField]) -> list[GridPoint]:
    """Return the points of --grid: `paper`, or OPTION=A,B as of finetune.

    Raises:
        UsageError: see `grid.parse_grid`; or `paper` is not alone.
    """
    if PAPER_GRID not in axes:
        return parse_grid(axes, options)
    if len(axes) > 1:
        raise UsageError(f"--grid {PAPER_GRID} is the grid of the paper; leave out the other --grid")
    hyper = benchmark.hyper
    return [{"lr": lr, "batch_size": size} for lr in hyper.learning_rates for size in hyper.batch_sizes]


def check_axes(grids: Mapping[str, Sequence[GridPoint]], overrides: Overrides) -> None:
    """Check that no option has both one value and those of a grid.

    Args:
        grids: points by benchmark.
        overrides: see `parse_overrides`.

    Raises:
        UsageError: --set names an option of --grid, whose values would replace it.
    """
    for benchmark, points in grids.items():
        axes = {name for point in points for name in point}
        for prefix, values in (("", overrides.get("", {})), (f"{benchmark}.", overrides.get(benchmark, {}))):
            for name in sorted(axes & values.keys()):
                option = name.replace("_", "-")
                value = format_value(values[name])
                raise UsageError(
                    f"--set {prefix}{option}={value} has no effect, because --grid sets {option} too; leave out one of "
                    "the two"
                )


def check_options(
    build: Callable[..., FineTuningOptions],
    fine_tuning: BenchmarkFineTuning,
    points: Sequence[GridPoint],
    overrides: Overrides,
    checkpoints: Iterable[Checkpoint],
) -> None:
    """Check the options of a benchmark's runs at each point of its grid, before anything is trained.

    Raises:
        UsageError: see `point_checks`.
    """
    from biosqueeze.finetuning.point_checks import check_points, check_points_on_data  # imports torch
    from biosqueeze.models.loading.load import load_config

    facts, name = fine_tuning.data_facts, fine_tuning.benchmark.name
    shared = {"checkpoint": "any", "data": str(fine_tuning.data), **fine_tuning.options}
    try:
        check_points(build, shared, points, {**overrides.get("", {}), **overrides.get(name, {})})
        options = build(**shared, sources=dict.fromkeys(shared, "flag"))
        for checkpoint in checkpoints:
            check_points_on_data(options, points, load_config(checkpoint), facts.output_type, facts.examples)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error


def _directory(checkpoint: Checkpoint, fine_tuning: BenchmarkFineTuning, out: Path) -> Path:
    digest = hashlib.sha256(str(checkpoint.path.resolve()).encode()).hexdigest()[:6]
    return out / f"{checkpoint.short_name}-{digest}" / fine_tuning.benchmark.name
