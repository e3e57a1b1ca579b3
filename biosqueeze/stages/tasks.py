"""List the named benchmarks, or inspect a data set before training."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from biosqueeze.benchmarks.suite import (
    DIRECTORY,
    Benchmark,
    find_benchmark,
    load_suite,
    resolve_task,
    suite_names,
    task_names,
)
from biosqueeze.errors import UsageError
from biosqueeze.options import Argument, Block, OnDisk, Outcome, Plan, Purpose, StageOptions, Suggests, flag_of
from biosqueeze.progress import warn
from biosqueeze.registry import closest
from biosqueeze.reporting.suite_tables import benchmark_facts, show_benchmark, show_suite, show_suites, suite_facts
from biosqueeze.tasks.formulation import Formulation, ReadingOptions

if TYPE_CHECKING:
    from biosqueeze.tasks import Dataset

PURPOSE = Purpose.PIPELINE
EXAMPLES = (
    ("List all named benchmarks", "biosqueeze tasks"),
    ("Show one suite, and where its data are under a directory", "biosqueeze tasks blurb benchmarks"),
    (
        "Read a data set and compare its counts with the paper's",
        "biosqueeze tasks inspect NCBI-disease --task blurb/ncbi-disease",
    ),
)
INSPECT = "inspect"


@dataclass(frozen=True, kw_only=True)
class Options(ReadingOptions, StageOptions):
    """List named benchmarks, or inspect a data set.

    `biosqueeze tasks` lists all benchmarks. `tasks blurb` and `tasks blurb/hoc` show one suite or benchmark: counts,
    metric, source, hyperparameters and published scores; `tasks blurb ROOT` also shows where its data are under ROOT.
    `tasks inspect DIR` reads a data set and shows columns, scheme, labels, counts, lengths and overlaps; with
    --task blurb/hoc it compares the counts with the paper's.

    The output is printed on standard output.
    """

    what: Annotated[
        str | None,
        "A suite, a benchmark, or the word inspect. Default: list all benchmarks.",
        Suggests(lambda: (INSPECT, *suite_names())),
        Argument(),
    ] = None
    directory: Annotated[
        str | None,
        "The data set to inspect: directory, hub:NAME, demo:ner, or - for a path on standard input. With a suite: the "
        "directory that holds its data sets.",
        Argument(),
        OnDisk(),
    ] = None
    task: Annotated[
        str | None,
        "For inspect: task kind, or a benchmark such as blurb/hoc. Default: a guess from the data.",
        Suggests(task_names),
    ] = None


def plan(options: Options) -> Plan:
    """Describe the run; only the first records of a data set are read."""
    _check(options)
    if options.what == INSPECT:
        form = Formulation.from_options(options)
        kind = resolve_task(options.task)[0] if options.task else _guess_kind(str(options.directory), form)[0]
        step = f"read {options.directory} as {kind} and print its statistics"
    else:
        step = f"print {options.what or 'every named benchmark'}"
    return Plan(out=None, steps=(f"{step}; write nothing",))


def run(options: Options) -> Outcome:
    """Show the benchmarks, or the statistics of a data set.

    Raises:
        SqueezeError: the data set cannot be read.
        UsageError: there is no such suite, benchmark or kind, or an option does not fit.
    """
    _check(options)
    if options.what == INSPECT:
        return _inspect(options, str(options.directory))
    if options.what is None:
        suites = [load_suite(name) for name in suite_names()]
        facts = {"suites": {suite.name: suite_facts(suite, None) for suite in suites}}
        return Outcome(DIRECTORY, facts, blocks=tuple(show_suites(suites)))
    root = Path(options.directory).expanduser() if options.directory else None
    suite = load_suite(options.what.partition("/")[0])
    if "/" in options.what:
        benchmark = find_benchmark(options.what)
        blocks = tuple(show_benchmark(suite, benchmark, root))
        return Outcome(suite.path, benchmark_facts(benchmark, root), blocks=blocks)
    return Outcome(suite.path, suite_facts(suite, root), blocks=tuple(show_suite(suite, root)))


def _check(options: Options) -> None:
    """Refuse unknown suites, and options without effect."""
    known = [INSPECT, *suite_names()]
    if options.what is not None and options.what.partition("/")[0] not in known:
        raise UsageError(
            f"there is no suite {options.what!r}.{closest(options.what, known)} Known: {', '.join(suite_names())}; "
            f"to inspect a data set: biosqueeze tasks inspect {shlex.quote(options.what)}"
        )
    if options.what == INSPECT:
        if options.directory is None:
            raise UsageError("tasks inspect needs a data set; name its directory, as in: biosqueeze tasks inspect DIR")
        return
    given = [*Formulation.from_options(options).non_defaults(), *(["task"] if options.task else [])]
    if given:
        raise UsageError(
            f"{flag_of(given[0])} is for reading a data set; the command for that is: biosqueeze tasks inspect DIR"
        )
    if options.directory is not None and not Path(options.directory).expanduser().is_dir():
        raise UsageError(f"there is no directory {options.directory}; name the one that holds the data sets")


def _inspect(options: Options, source: str) -> Outcome:
    """Read a data set as finetune does, with the formulation of the benchmark, and print its statistics."""
    from biosqueeze.benchmarks.statistics import dataset_statistics
    from biosqueeze.finetuning.data import open_task_setup
    from biosqueeze.reporting.dataset_tables import show_statistics
    from biosqueeze.tasks.sniffing import read_available

    form = Formulation.from_options(options)
    name, other_kinds = (options.task, ()) if options.task else _guess_kind(source, form)
    setup = open_task_setup(name, form, options.written)
    kind, benchmark = setup.kind, setup.benchmark
    data = read_available(setup.task, source)
    facts = {
        "kind": kind,
        "guessed": options.task is None,
        "other_kinds": list(other_kinds),
        **dataset_statistics(data, kind),
    }
    blocks = show_statistics(source, facts)
    if benchmark is not None:
        compared, sentences = _compare(benchmark, data, setup.task.formulation.negative)
        facts |= compared
        blocks += sentences
    return Outcome(Path(source), facts, blocks=tuple(blocks))


def _guess_kind(source: str, form: Formulation) -> tuple[str, tuple[str, ...]]:
    """Return the task kind that fits a data set best, and the others that fit."""
    from biosqueeze.tasks.sniffing import guess

    guessed = guess(source, form)
    also = f"; {' and '.join(guessed.others)} would read it too" if guessed.others else ""
    warn(f"{source} is read as {guessed.kind}, which is a guess{also}; give the kind with --task")
    return guessed.kind, guessed.others


def _compare(benchmark: Benchmark, data: "Dataset", negative: str | None) -> tuple[dict[str, Any], list[Block]]:
    """Compare the counts of a data set with the paper's; return them, and whether they agree."""
    from biosqueeze.benchmarks.counts import count, warn_of_counts
    from biosqueeze.reporting.dataset_tables import show_comparison

    counts = count(data, benchmark.unit, negative) if benchmark.unit else {}
    differences = warn_of_counts(benchmark, data, negative)
    blocks = show_comparison(benchmark, counts, differences)
    return {"counts": counts, "differences": differences}, blocks
