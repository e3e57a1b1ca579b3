"""Fine-tune and score checkpoints on a whole suite of named benchmarks, and draw its table."""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from biosqueeze import registry
from biosqueeze.checkpoint import Checkpoint, open_checkpoint
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.options import (
    Argument,
    Bounds,
    Group,
    OnDisk,
    Outcome,
    Plan,
    Purpose,
    Short,
    StageOptions,
    Syntax,
    option_fields,
)
from biosqueeze.progress import note, table, warn

if TYPE_CHECKING:
    from biosqueeze.benchmarks.suite import Benchmark, Hyperparameters, Suite
    from biosqueeze.finetuning.runs import FineTuningRun, RunResult
    from biosqueeze.reporting.scoreboard import Scoreboard

PURPOSE = Purpose.MEASURE
EXAMPLES = (
    (
        "Compare a student with its teacher on BLURB, with 5 seeds",
        "biosqueeze benchmark teacher student --suite blurb --data benchmarks --seeds 5",
    ),
    (
        "Run one benchmark with another learning rate",
        "biosqueeze benchmark student --data benchmarks --only ncbi-disease --set lr=1e-4",
    ),
)

# The papers give a range of epochs; this many are trained at most, the best on dev being kept.
MOST_EPOCHS = 20.0
DEV_SHARE = 0.1
# What this command itself decides for each run, and what would make a search of a run.
_NOT_TO_SET = {
    *("checkpoint", "sources", "data", "task", "out", "force", "resume", "seed"),
    *("grid", "seeds", "folds", "jobs"),
}


@dataclass(frozen=True, kw_only=True)
class Options(StageOptions):
    """Fine-tune and score checkpoints on a suite of benchmarks.

    Every benchmark of the suite that is found under --data is trained with several seeds and the hyperparameters of the
    paper (of a grid, its highest learning rate and smallest batch) and scored once on its test split. The table, beside
    the paper's scores, is written to OUT as SUITE.json, SUITE.md and SUITE.tex. Repeat the command to continue an
    interrupted run.
    """

    checkpoint: Annotated[
        tuple[str, ...], "Directories, Hub ids, or demo:minilm. The first is the reference.", Argument(), OnDisk()
    ]
    data: Annotated[str, "Directory that holds the benchmarks, each in its own folder.", OnDisk()]
    suite: Annotated[str, "Suite of benchmarks; `biosqueeze tasks` lists them."] = "blurb"
    only: Annotated[tuple[str, ...], "Name of a benchmark, repeatable: run only these."] = ()
    seeds: Annotated[int, "Runs of each benchmark, with the seeds 0, 1, ...", Bounds(least=1), Group.SEARCH] = 3
    set: Annotated[
        tuple[str, ...],
        "Option of finetune for one benchmark or for all, repeatable.",
        Syntax("[BENCHMARK.]OPTION=VALUE"),
        Group.SEARCH,
    ] = ()
    published: Annotated[
        tuple[str, ...], "Model of the paper to show in the table, repeatable. Default: its best three.", Group.OUTPUT
    ] = ()
    jobs: Annotated[
        int | None,
        "Runs at the same time. Default: one per GPU, or one on a CPU.",
        Bounds(least=1),
        Group.SEARCH,
    ] = None
    keep: Annotated[Literal["none", "best", "all"], "Fine-tuned checkpoints to keep in OUT.", Group.OUTPUT] = "none"
    out: Annotated[
        str | None,
        "Directory for runs and tables. Default: ./SUITE-benchmark.",
        Short("o"),
        OnDisk(),
        Group.OUTPUT,
    ] = None


@dataclass(frozen=True)
class _Job:
    """One benchmark with its data, and how it is fine-tuned."""

    benchmark: "Benchmark"
    data: Path
    options: Mapping[str, Any]
    folds: tuple[Path, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class _Setting:
    suite: "Suite"
    jobs: tuple[_Job, ...]
    skipped: Mapping[str, str]
    checkpoints: Mapping[str, Checkpoint]  # by the name of their column
    out: Path


def _settle(options: Options) -> _Setting:
    from biosqueeze.benchmarks.suite import load_suite

    suite = load_suite(options.suite)
    for flag, asked, known in (
        ("--only", options.only, [b.name for b in suite.benchmarks]),
        ("--published", options.published, suite.models),
    ):
        for name in asked:
            if name not in known:
                near = registry.closest(name, known)
                raise UsageError(f"{flag}: {suite.name} has no {name!r}.{near} Known: {', '.join(known)}")
    changes = _changes(options.set, [b.name for b in suite.benchmarks])
    jobs, skipped = _jobs(options, suite, changes)
    checkpoints = _columns([open_checkpoint(name, weights=False) for name in options.checkpoint])
    return _Setting(suite, jobs, skipped, checkpoints, Path(options.out or f"{suite.name}-benchmark"))


def _changes(asked: Sequence[str], benchmarks: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What --set says, by benchmark; "" is all of them."""
    from biosqueeze.finetuning.grid import find_option, parse_value

    fields = {
        f.name: f for f in option_fields(registry.load("stages", "finetune").Options) if f.name not in _NOT_TO_SET
    }
    changes: dict[str, dict[str, Any]] = {}
    for text in asked:
        name, equals, value = text.partition("=")
        benchmark, _, option = name.rpartition(".")
        if not equals or (benchmark and benchmark not in benchmarks):
            near = registry.closest(benchmark, benchmarks)
            raise UsageError(f"--set {text!r} does not read [BENCHMARK.]OPTION=VALUE, like ncbi-disease.lr=5e-5.{near}")
        found = find_option(option, fields, "--set")
        given, new = changes.setdefault(benchmark, {}), parse_value(value, found, "--set")
        if found.name in given and not found.repeated:
            raise UsageError(f"--set {name} is given twice, and takes one value")
        given[found.name] = (*given.get(found.name, ()), *new) if found.repeated else new
    return changes


def _columns(checkpoints: Sequence[Checkpoint]) -> dict[str, Checkpoint]:
    """Column names: the last part of each name, or the whole where those are alike."""
    short = [checkpoint.short_name for checkpoint in checkpoints]
    names = short if len(set(short)) == len(short) else [checkpoint.name for checkpoint in checkpoints]
    if len(set(names)) < len(names):
        raise UsageError("a checkpoint is named twice; name each once")
    return dict(zip(names, checkpoints, strict=True))


def _jobs(
    options: Options, suite: "Suite", changes: Mapping[str, Mapping[str, Any]]
) -> tuple[tuple[_Job, ...], dict[str, str]]:
    """The benchmarks that can be run, and why the others cannot."""
    from biosqueeze.benchmarks.suite import locate

    root = Path(options.data).expanduser()
    if not root.is_dir():
        raise SqueezeError(f"there is no directory {options.data}; give the one under which the benchmarks lie")
    jobs: list[_Job] = []
    skipped: dict[str, str] = {}
    for benchmark in suite.benchmarks:
        if options.only and benchmark.name not in options.only:
            continue
        place = locate(benchmark, root)
        if place is None:
            skipped[benchmark.name] = f"no {' or '.join(benchmark.folders)} under {options.data}"
        else:
            try:
                asked = {**_papers(benchmark), **changes.get("", {}), **changes.get(benchmark.name, {})}
                jobs.append(_job(benchmark, place, asked))
            except SqueezeError as error:
                skipped[benchmark.name] = str(error)
                warn(f"{benchmark.title} is left out: {error}")
    if not jobs:
        raise SqueezeError(
            f"none of {suite.name}'s benchmarks is under {options.data} with all its splits: "
            f"`biosqueeze tasks {suite.name}` says where to get them and how to name their folders"
        )
    return tuple(jobs), skipped


def _job(benchmark: "Benchmark", place: Path, asked: Mapping[str, Any]) -> _Job:
    """Read all splits once, before anything is trained.

    Where there is no dev split (BioASQ, the folds of GAD and EU-ADR), one is held out of train.
    """
    from biosqueeze.data.splits import folds

    parts = folds(place) if benchmark.folds else ()
    read = partial(_read, benchmark, parts or (place,), asked)
    if "dev_share" in asked:
        return _Job(benchmark, place, asked, parts, read(("train", "test")))
    try:
        return _Job(benchmark, place, asked, parts, read(("train", "dev", "test")))
    except SqueezeError as error:
        fault = error
    with contextlib.suppress(SqueezeError):
        said = read(("train", "test"))
        warn(f"{benchmark.title}: {fault}; so {DEV_SHARE:.0%} of train is held out as dev")
        return _Job(benchmark, place, {**asked, "dev_share": DEV_SHARE}, parts, said)
    raise fault


def _read(benchmark: "Benchmark", parts: Sequence[Path], asked: Mapping[str, Any], splits: Sequence[str]) -> str:
    """Read these splits; in what the data are not the paper's."""
    from biosqueeze.benchmarks.suite import warn_of_counts
    from biosqueeze.tasks import open_task
    from biosqueeze.tasks.formulation import Formulation

    known = {f.name for f in fields(Formulation)}
    form = {**benchmark.form, **{name: value for name, value in asked.items() if name in known}}
    task = open_task(benchmark.kind, Formulation(**form))
    data = [task.read(str(part), splits) for part in parts]
    # Of a cross-validated set the papers count the whole, not the folds.
    return "" if benchmark.folds else "; ".join(warn_of_counts(benchmark, data[0], asked.get("negative")))


def _papers(benchmark: "Benchmark") -> dict[str, Any]:
    """The paper's way to fine-tune, as finetune's options."""
    from biosqueeze.tasks import open_task

    hyper: Hyperparameters = benchmark.hyper
    kind = open_task(benchmark.kind)
    asked = {
        "task": benchmark.kind,
        "metric": benchmark.metric if benchmark.metric != kind.METRIC else None,
        "lr": max(hyper.learning_rates),
        "batch_size": min(hyper.batch_sizes),
        "epochs": min(hyper.epochs or MOST_EPOCHS, MOST_EPOCHS),
        "max_length": hyper.max_length,
        "warmup": hyper.warmup,
        **benchmark.form,
    }
    return {name: value for name, value in asked.items() if value is not None}


def plan(options: Options) -> Plan:
    """What would be run."""
    setting = _settle(options)
    runs = list(_keys(options, setting))
    told = (f"{job.benchmark.key}: {job.data}, {_words(job.options)}" for job in setting.jobs)
    left = (f"{name}: left out, {why}" for name, why in setting.skipped.items())
    return Plan(out=setting.out, steps=(f"fine-tune and score {len(runs)} times", *told, *left))


def _words(options: Mapping[str, Any]) -> str:
    from biosqueeze.finetuning.grid import format_value

    return ", ".join(f"{name.replace('_', '-')} {format_value(value)}" for name, value in options.items())


def run(options: Options) -> Outcome:
    """Do all runs that are not done yet, and write the table.

    Raises:
        SqueezeError: no benchmark of the suite is there, or a run failed.
    """
    from biosqueeze.finetuning.runs import execute

    setting = _settle(options)
    keys, runs = list(_keys(options, setting)), list(_runs(options, setting))
    note(f"{len(runs)} runs in {setting.out}; those that are done already are skipped")
    results = execute(runs, jobs=options.jobs, keep=options.keep)
    board = _board(options, setting, keys, results)
    _write(board, setting)
    table(f"{setting.suite.title}: test scores in percent", board.columns(), list(board.rows()))
    for line in board.footnotes():
        note(line)
    return Outcome(setting.out, board.as_dict())


def _keys(options: Options, setting: _Setting) -> Iterator[tuple[str, str]]:
    """Checkpoint and benchmark of every run, in the order of `_runs`."""
    for name in setting.checkpoints:
        for job in setting.jobs:
            yield from [(name, job.benchmark.name)] * (len(job.folds or (job.data,)) * options.seeds)


def _runs(options: Options, setting: _Setting) -> "Iterator[FineTuningRun]":
    from biosqueeze.finetuning.runs import FineTuningRun

    for column, checkpoint in setting.checkpoints.items():
        digest = hashlib.sha256(str(checkpoint.path.resolve()).encode()).hexdigest()[:6]
        for job in setting.jobs:
            for place in job.folds or (job.data,):
                fold = [f"fold-{place.name}"] if job.folds else []
                for seed in range(options.seeds):
                    words = [column, job.benchmark.name, *fold, f"seed {seed}"]
                    where = [f"{checkpoint.short_name}-{digest}", job.benchmark.name, *fold, f"seed-{seed}"]
                    yield FineTuningRun(
                        ", ".join(words),
                        checkpoint.name,
                        setting.out.joinpath(*where),
                        {"data": str(place), **job.options, "seed": seed},
                        group=f"{column}, {job.benchmark.name}",
                    )


def _board(
    options: Options, setting: _Setting, keys: "Sequence[tuple[str, str]]", results: "Sequence[RunResult]"
) -> "Scoreboard":
    from biosqueeze.reporting.scoreboard import Cell, Scoreboard, best_published

    metric = {job.benchmark.name: job.benchmark.metric for job in setting.jobs}
    cells = {}
    for key in dict.fromkeys(keys):
        mine = [result for k, result in zip(keys, results, strict=True) if k == key]
        scores = tuple(100 * float((result.test or {})["metrics"][metric[key[1]]]) for result in mine)
        cells[key] = Cell(scores, sum(result.seconds for result in mine) / 60)
    return Scoreboard(
        setting.suite,
        tuple(job.benchmark for job in setting.jobs),
        tuple(setting.checkpoints),
        cells,
        notes={job.benchmark.name: job.note for job in setting.jobs if job.note},
        skipped=setting.skipped,
        settings={job.benchmark.name: job.options for job in setting.jobs},
        published=best_published(setting.suite, options.published),
    )


def _write(board: "Scoreboard", setting: _Setting) -> None:
    from biosqueeze.files import write_json
    from biosqueeze.reporting.scoreboard import latex, markdown

    stem = setting.out / setting.suite.name
    write_json(stem.with_suffix(".json"), board.as_dict())
    stem.with_suffix(".md").write_text(markdown(board), encoding="utf-8")
    stem.with_suffix(".tex").write_text(latex(board), encoding="utf-8")
