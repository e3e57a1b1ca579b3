"""Fine-tune and score checkpoints on a whole suite of named benchmarks, and draw its table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from biosqueeze import registry
from biosqueeze.checkpoint import Checkpoint, open_checkpoint
from biosqueeze.errors import UsageError
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
    Summary,
    Syntax,
    option_fields,
)
from biosqueeze.progress import note, table

if TYPE_CHECKING:
    from biosqueeze.benchmarks.suite import Suite
    from biosqueeze.finetuning.runs import FineTuningRun, RunResult
    from biosqueeze.finetuning.suite_runs import BenchmarkFineTuning
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

# Options that this command sets for each run, and those that would make a search of a run.
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
class _BenchmarkPlan:
    """What is decided before the first run."""

    suite: "Suite"
    fine_tunings: tuple["BenchmarkFineTuning", ...]
    skipped: Mapping[str, str]  # why a benchmark is left out, by its name
    checkpoints: Mapping[str, Checkpoint]  # by the name of their column
    out: Path


def _plan(options: Options) -> _BenchmarkPlan:
    from biosqueeze.benchmarks.suite import load_suite
    from biosqueeze.finetuning.suite_runs import find_benchmarks, parse_overrides

    suite = load_suite(options.suite)
    names = [benchmark.name for benchmark in suite.benchmarks]
    _check_known("--only", options.only, names, suite.name)
    _check_known("--published", options.published, suite.models, suite.name)
    finetune_options = option_fields(registry.load("stages", "finetune").Options)
    settable = {field.name: field for field in finetune_options if field.name not in _NOT_TO_SET}
    overrides = parse_overrides(options.set, names, settable)
    fine_tunings, skipped = find_benchmarks(suite, Path(options.data).expanduser(), options.only, overrides)
    checkpoints = _columns([open_checkpoint(name, weights=False) for name in options.checkpoint])
    return _BenchmarkPlan(suite, fine_tunings, skipped, checkpoints, Path(options.out or f"{suite.name}-benchmark"))


def _check_known(flag: str, names: Sequence[str], known: Sequence[str], suite: str) -> None:
    for name in names:
        if name not in known:
            near = registry.closest(name, known)
            raise UsageError(f"{flag}: {suite} has no {name!r}.{near} Known: {', '.join(known)}")


def _columns(checkpoints: Sequence[Checkpoint]) -> dict[str, Checkpoint]:
    """Return the checkpoints by the last part of their names, or by the whole names where last parts are equal."""
    short = [checkpoint.short_name for checkpoint in checkpoints]
    names = short if len(set(short)) == len(short) else [checkpoint.name for checkpoint in checkpoints]
    if len(set(names)) < len(names):
        raise UsageError("a checkpoint is named twice; name each once")
    return dict(zip(names, checkpoints, strict=True))


def plan(options: Options) -> Plan:
    """List what would be run."""
    from biosqueeze.finetuning.grid import format_value

    decided = _plan(options)
    steps = [f"fine-tune and score {len(_runs(options, decided))} times"]
    for fine_tuning in decided.fine_tunings:
        values = (f"{name.replace('_', '-')} {format_value(value)}" for name, value in fine_tuning.options.items())
        steps.append(f"{fine_tuning.benchmark.key}: {fine_tuning.data}, {', '.join(values)}")
    steps += [f"{name}: left out, {why}" for name, why in decided.skipped.items()]
    return Plan(out=decided.out, steps=tuple(steps))


def run(options: Options) -> Outcome:
    """Do all runs that are not done yet, and write the table.

    Raises:
        SqueezeError: no benchmark of the suite was found, or a run failed.
    """
    from biosqueeze.finetuning.runs import execute

    decided = _plan(options)
    runs = _runs(options, decided)
    note(f"{len(runs)} runs in {decided.out}; finished ones are skipped")
    results = execute([run for _, run in runs], jobs=options.jobs, keep=options.keep)
    by_cell: dict[tuple[str, str], list[RunResult]] = {}
    for (cell, _), result in zip(runs, results, strict=True):
        by_cell.setdefault(cell, []).append(result)
    board = _scoreboard(options, decided, by_cell)
    _write(board, decided)
    table(f"{decided.suite.title}: test scores in percent", board.columns(), list(board.rows()), keys=2)
    for line in board.footnotes():
        note(line)
    return Outcome(decided.out, board.as_dict(), summary=Summary(result=f"scored {len(runs)} runs on test"))


def _runs(options: Options, decided: _BenchmarkPlan) -> "list[tuple[tuple[str, str], FineTuningRun]]":
    """Return all runs, each with its cell of the table: the names of checkpoint and benchmark."""
    from biosqueeze.finetuning.suite_runs import runs_of

    return [
        ((column, fine_tuning.benchmark.name), run)
        for column, checkpoint in decided.checkpoints.items()
        for fine_tuning in decided.fine_tunings
        for run in runs_of(checkpoint, column, fine_tuning, options.seeds, decided.out)
    ]


def _scoreboard(
    options: Options, decided: _BenchmarkPlan, results: "Mapping[tuple[str, str], Sequence[RunResult]]"
) -> "Scoreboard":
    from biosqueeze.reporting.scoreboard import Scoreboard, ScoreCell, best_published

    metrics = {item.benchmark.name: item.benchmark.metric for item in decided.fine_tunings}
    cells = {}
    for cell, cell_results in results.items():
        scores = tuple(100 * float((result.test or {})["metrics"][metrics[cell[1]]]) for result in cell_results)
        cells[cell] = ScoreCell(scores, sum(result.seconds for result in cell_results) / 60)
    return Scoreboard(
        decided.suite,
        tuple(item.benchmark for item in decided.fine_tunings),
        tuple(decided.checkpoints),
        cells,
        notes={item.benchmark.name: item.note for item in decided.fine_tunings if item.note},
        skipped=decided.skipped,
        settings={item.benchmark.name: item.options for item in decided.fine_tunings},
        published=best_published(decided.suite, options.published),
    )


def _write(board: "Scoreboard", decided: _BenchmarkPlan) -> None:
    from biosqueeze.files import write_json
    from biosqueeze.reporting.scoreboard import latex, markdown

    stem = decided.out / decided.suite.name
    write_json(stem.with_suffix(".json"), board.as_dict())
    stem.with_suffix(".md").write_text(markdown(board), encoding="utf-8")
    stem.with_suffix(".tex").write_text(latex(board), encoding="utf-8")
