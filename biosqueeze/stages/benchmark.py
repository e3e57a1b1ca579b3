"""Fine-tune and score checkpoints on a whole suite of named benchmarks, and draw its table."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from biosqueeze import registry
from biosqueeze.benchmarks.suite import suite_names
from biosqueeze.checkpoint import Checkpoint, open_checkpoint, short_names
from biosqueeze.errors import UsageError
from biosqueeze.finetuning.options import OF_SEARCHES
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
    Suggests,
    Summary,
    Syntax,
    option_fields,
)
from biosqueeze.progress import counted, note, table

if TYPE_CHECKING:
    from biosqueeze.benchmarks.suite import Suite
    from biosqueeze.finetuning.grid import GridPoint
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
        "Search the paper's grid on dev, then run as many seeds as the paper",
        "biosqueeze benchmark student --data benchmarks --suite bioformer --grid paper",
    ),
    (
        "Run one benchmark with another learning rate",
        "biosqueeze benchmark student --data benchmarks --only ncbi-disease --set lr=1e-4",
    ),
)

# Options that this command sets for each run, and those that would make a search of a run.
_NOT_TO_SET = (*OF_SEARCHES, "data", "task")


@dataclass(frozen=True, kw_only=True)
class Options(StageOptions):
    """Fine-tune and score checkpoints on a suite of benchmarks.

    Every benchmark of the suite that is found under --data is trained with several seeds and the hyperparameters of the
    paper (of a grid, its highest learning rate and smallest batch, or the best on dev with --grid paper) and scored
    once on its test split. The table, beside the paper's scores, is written to OUT as SUITE.json, SUITE.md and
    SUITE.tex. Repeat the command to continue an interrupted run.
    """

    checkpoint: Annotated[
        tuple[str, ...],
        "Directories, Hub ids, or demo:minilm. The first is the reference.",
        Argument(),
        OnDisk(may_be_name=True),
    ]
    data: Annotated[str, "Directory that holds the benchmarks, each in its own folder.", OnDisk()]
    suite: Annotated[str, "Suite of benchmarks; `biosqueeze tasks` lists them.", Suggests(suite_names)] = "blurb"
    only: Annotated[tuple[str, ...], "Name of a benchmark, repeatable: run only these."] = ()
    seeds: Annotated[
        int | None,
        "Runs of each benchmark, with the seeds 0, 1, ... Default: as many as in the paper.",
        Bounds(least=1),
        Group.SEARCH,
    ] = None
    grid: Annotated[
        tuple[str, ...],
        "Search these options of finetune on dev first, for each checkpoint and benchmark with one seed; repeatable. "
        "paper: the learning rates and batch sizes of the paper.",
        Syntax("paper|OPTION=A,B,..."),
        Group.SEARCH,
    ] = ()
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
        OnDisk(is_output=True),
        Group.OUTPUT,
    ] = None


_Cell = tuple[str, str]  # of the table: the names of checkpoint and benchmark


@dataclass(frozen=True)
class _BenchmarkPlan:
    """What is decided before the first run."""

    suite: "Suite"
    fine_tunings: tuple["BenchmarkFineTuning", ...]
    skipped: Mapping[str, str]  # why a benchmark is left out, by its name
    checkpoints: Mapping[str, Checkpoint]  # by the name of their column
    grids: Mapping[str, Sequence["GridPoint"]]  # by benchmark; empty without --grid
    out: Path


def _plan(options: Options) -> _BenchmarkPlan:
    from biosqueeze.benchmarks.suite import load_suite
    from biosqueeze.finetuning.suite_runs import (
        check_axes,
        check_options,
        find_benchmarks,
        grid_points,
        parse_overrides,
    )

    suite = load_suite(options.suite)
    names = [benchmark.name for benchmark in suite.benchmarks]
    _check_known("--only", options.only, names, suite.name)
    _check_known("--published", options.published, suite.models, suite.name)
    finetune_options = registry.load("stages", "finetune").Options
    settable = {field.name: field for field in option_fields(finetune_options) if field.name not in _NOT_TO_SET}
    overrides = parse_overrides(options.set, names, settable)
    fine_tunings, skipped = find_benchmarks(suite, Path(options.data).expanduser(), options.only, overrides)
    checkpoints = _columns([open_checkpoint(name, weights=False) for name in options.checkpoint])
    found = [item.benchmark for item in fine_tunings]
    grids = {each.name: grid_points(options.grid, each, settable) for each in found} if options.grid else {}
    check_axes(grids, overrides)
    for item in fine_tunings if options.grid or options.set else ():
        check_options(finetune_options, item, grids.get(item.benchmark.name, [{}]), overrides, checkpoints.values())
    out = Path(options.out or f"{suite.name}-benchmark")
    return _BenchmarkPlan(suite, fine_tunings, skipped, checkpoints, grids, out)


def _check_known(flag: str, names: Sequence[str], known: Sequence[str], suite: str) -> None:
    for name in names:
        if name not in known:
            near = registry.closest(name, known)
            raise UsageError(f"{flag}: {suite} has no {name!r}.{near} Known: {', '.join(known)}")


def _columns(checkpoints: Sequence[Checkpoint]) -> dict[str, Checkpoint]:
    """Return the checkpoints by the last part of their names, or by the whole names where last parts are equal.

    Raises:
        UsageError: two names are of one checkpoint, whose runs would be in one directory.
    """
    name_by_path: dict[Path, str] = {}
    for checkpoint in checkpoints:
        path = checkpoint.path.resolve()
        if path in name_by_path:
            both = " and ".join(dict.fromkeys([name_by_path[path], checkpoint.name]))
            raise UsageError(f"one checkpoint is named twice: {both}; name each once")
        name_by_path[path] = checkpoint.name
    names = short_names(name_by_path.values())
    return {names[checkpoint.name]: checkpoint for checkpoint in checkpoints}


def plan(options: Options) -> Plan:
    """List what would be run."""
    from biosqueeze.finetuning.grid import format_value
    from biosqueeze.finetuning.runs import check_existing

    decided = _plan(options)
    check_existing(_grid_runs(decided) if decided.grids else [run for _, run in _runs(options, decided, {})])
    searched = sum(map(len, decided.grids.values())) * len(decided.checkpoints)
    steps = [f"search a grid on dev: {searched} runs"] if searched else []
    steps.append(f"fine-tune and score {len(_runs(options, decided, {}))} times")
    for fine_tuning in decided.fine_tunings:
        axes = _axes(decided.grids.get(fine_tuning.benchmark.name, ()))
        values = {name: [value] for name, value in fine_tuning.options.items()} | axes
        shown = (f"{name.replace('_', '-')} {' or '.join(map(format_value, each))}" for name, each in values.items())
        steps.append(f"{fine_tuning.benchmark.key}: {fine_tuning.data}, {', '.join(shown)}")
    steps += [f"{name}: left out, {why}" for name, why in decided.skipped.items()]
    return Plan(out=decided.out, steps=tuple(steps))


def _axes(points: "Sequence[GridPoint]") -> dict[str, list[Any]]:
    """Return the values of each option in a grid."""
    return {name: list(dict.fromkeys(point[name] for point in points)) for point in points[:1] for name in point}


def run(options: Options) -> Outcome:
    """Do all runs that are not done yet, and write the table.

    Raises:
        SqueezeError: no benchmark of the suite was found, or a run failed.
    """
    from biosqueeze.finetuning.runs import execute

    decided = _plan(options)
    chosen = _search(options, decided)
    runs = _runs(options, decided, chosen)
    note(f"{counted(len(runs), 'run')} in {decided.out}; finished ones are skipped")
    results = execute([run for _, run in runs], jobs=options.jobs, keep=options.keep)
    by_cell: dict[_Cell, list[RunResult]] = {}
    for (cell, _), result in zip(runs, results, strict=True):
        by_cell.setdefault(cell, []).append(result)
    board = _scoreboard(options, decided, by_cell, chosen)
    _write(board, decided)
    table(f"{decided.suite.title}: test scores in percent", board.columns(), list(board.rows()), keys=2)
    for line in board.footnotes():
        note(line)
    return Outcome(decided.out, board.as_dict(), summary=Summary(result=f"scored {counted(len(runs), 'run')} on test"))


def _runs(
    options: Options, decided: _BenchmarkPlan, chosen: "Mapping[_Cell, GridPoint]"
) -> "list[tuple[_Cell, FineTuningRun]]":
    """Return all runs, each with its cell of the table."""
    from biosqueeze.finetuning.suite_runs import runs_of

    return [
        (cell, run)
        for cell, checkpoint, fine_tuning in _cells(decided)
        for run in runs_of(
            checkpoint,
            cell[0],
            replace(fine_tuning, options={**fine_tuning.options, **chosen.get(cell, {})}),
            options.seeds,
            decided.out,
        )
    ]


def _cells(decided: _BenchmarkPlan) -> "Iterator[tuple[_Cell, Checkpoint, BenchmarkFineTuning]]":
    for column, checkpoint in decided.checkpoints.items():
        for fine_tuning in decided.fine_tunings:
            yield (column, fine_tuning.benchmark.name), checkpoint, fine_tuning


def _search(options: Options, decided: _BenchmarkPlan) -> "dict[_Cell, GridPoint]":
    """Return the point of the grid that is best on dev, for each cell of the table."""
    from biosqueeze.finetuning.grid import format_value
    from biosqueeze.finetuning.runs import best_of_groups, execute

    if not decided.grids:
        return {}
    points = [(cell, point) for cell, _, _ in _cells(decided) for point in decided.grids[cell[1]]]
    runs = _grid_runs(decided)
    note(f"searching on dev: {counted(len(runs), 'run')}")
    results = execute(runs, jobs=options.jobs, keep="none")
    best = best_of_groups(runs, dict(enumerate(results)))
    for number in best:
        (column, name), point = points[number]
        values = ", ".join(f"{option.replace('_', '-')} {format_value(value)}" for option, value in point.items())
        note(f"{column}, {name}: {values} (best on dev, {results[number].dev_score:.4f})")
    return dict(points[number] for number in best)


def _grid_runs(decided: _BenchmarkPlan) -> "list[FineTuningRun]":
    """Return the runs of the search, in the order of cells and points."""
    from biosqueeze.finetuning.suite_runs import grid_runs

    return [
        run
        for cell, checkpoint, item in _cells(decided)
        for run in grid_runs(checkpoint, cell[0], item, decided.grids[cell[1]], decided.out)
    ]


def _scoreboard(
    options: Options,
    decided: _BenchmarkPlan,
    results: "Mapping[_Cell, Sequence[RunResult]]",
    chosen: "Mapping[_Cell, GridPoint]",
) -> "Scoreboard":
    from biosqueeze.reporting.scoreboard import Scoreboard, ScoreCell, best_published

    metrics = {item.benchmark.name: item.benchmark.metric for item in decided.fine_tunings}
    cells = {}
    for cell, cell_results in results.items():
        scores = tuple(100 * float((result.test or {})["metrics"][metrics[cell[1]]]) for result in cell_results)
        statistic = decided.suite[cell[1]].hyper.statistic
        cells[cell] = ScoreCell(scores, sum(result.seconds for result in cell_results) / 60, statistic)
    return Scoreboard(
        decided.suite,
        tuple(item.benchmark for item in decided.fine_tunings),
        tuple(decided.checkpoints),
        cells,
        notes={item.benchmark.name: text for item in decided.fine_tunings if (text := item.data_facts.note)},
        skipped=decided.skipped,
        settings={
            item.benchmark.name: _without(item.options, _axes(decided.grids.get(item.benchmark.name, ())))
            for item in decided.fine_tunings
        },
        chosen=chosen,
        published=best_published(decided.suite, options.published),
    )


def _without(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _write(board: "Scoreboard", decided: _BenchmarkPlan) -> None:
    from biosqueeze.files import write_json, write_text
    from biosqueeze.reporting.scoreboard import latex, markdown

    stem = decided.out / decided.suite.name
    write_json(stem.with_suffix(".json"), board.as_dict())
    write_text(stem.with_suffix(".md"), markdown(board))
    write_text(stem.with_suffix(".tex"), latex(board))
