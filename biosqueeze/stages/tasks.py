"""The named benchmarks, and what a data set holds: tables to look things up in, and a look before training."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from biosqueeze.benchmarks.suite import (
    DIRECTORY,
    WHOLE,
    Benchmark,
    Published,
    Suite,
    find,
    load_suite,
    locate,
    names,
    resolve,
)
from biosqueeze.errors import UsageError
from biosqueeze.options import Argument, OnDisk, Outcome, Plan, Purpose, StageOptions
from biosqueeze.progress import note, table, warn
from biosqueeze.registry import closest
from biosqueeze.tasks.formulation import Formulation, ReadingOptions

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
_SPLITS = ("train", "dev", "test", WHOLE)
_BAR = 40
_MUCH_SHARED = 0.01


@dataclass(frozen=True, kw_only=True)
class Options(ReadingOptions, StageOptions):
    """List named benchmarks, or inspect a data set.

    `biosqueeze tasks` lists all benchmarks. `tasks blurb` and `tasks blurb/hoc` show one suite or benchmark: counts,
    metric, source, hyperparameters and published scores; `tasks blurb ROOT` also shows where its data are under ROOT.
    `tasks inspect DIR` reads a data set and shows columns, scheme, labels, counts, lengths and overlaps; with
    --task blurb/hoc it compares the counts with the paper's.

    The one line on standard output is the file of the benchmarks, or the data set.
    """

    what: Annotated[
        str | None, "A suite, a benchmark, or the word inspect. Default: list all benchmarks.", Argument()
    ] = None
    directory: Annotated[
        str | None,
        "The data set to inspect: directory, hub:NAME, demo:ner, or - for a path on standard input. With a suite: the "
        "directory that holds its data sets.",
        Argument(),
        OnDisk(),
    ] = None
    task: Annotated[
        str | None, "For inspect: task kind, or a benchmark such as blurb/hoc. Default: a guess from the data."
    ] = None


def plan(options: Options) -> Plan:
    """It only reads."""
    _check(options)
    if options.what == INSPECT:
        step = f"read {options.directory} as {options.task or 'whatever kind fits'} and show what it holds"
    else:
        step = f"show {options.what or 'every named benchmark'}"
    return Plan(out=None, steps=(f"{step}; write nothing",))


def run(options: Options) -> Outcome:
    """Show what was asked for.

    Raises:
        SqueezeError: the data set cannot be read.
        UsageError: there is no such suite, benchmark or kind, or an option does not fit.
    """
    _check(options)
    if options.what == INSPECT:
        return _inspect(options, str(options.directory))
    if options.what is None:
        return _list()
    root = Path(options.directory).expanduser() if options.directory else None
    if "/" in options.what:
        return _show_benchmark(find(options.what), root)
    return _show_suite(load_suite(options.what), root)


def _check(options: Options) -> None:
    """No option is ignored in silence."""
    known = [INSPECT, *names()]
    if options.what is not None and options.what.partition("/")[0] not in known:
        raise UsageError(
            f"there is no suite {options.what!r}.{closest(options.what, known)} Known: {', '.join(names())}; "
            f"to look at a data set: biosqueeze tasks inspect {options.what}"
        )
    if options.what == INSPECT:
        if options.directory is None:
            raise UsageError("tasks inspect needs a data set; name its directory, as in: biosqueeze tasks inspect DIR")
        return
    given = [*Formulation.from_options(options).non_defaults(), *(["task"] if options.task else [])]
    if given:
        raise UsageError(
            f"--{given[0].replace('_', '-')} is for data that are read; the command for that is: "
            "biosqueeze tasks inspect DIR"
        )
    if options.directory is not None and not Path(options.directory).expanduser().is_dir():
        raise UsageError(f"there is no directory {options.directory}; name the one that the data sets lie under")


def _list() -> Outcome:
    suites = [load_suite(name) for name in names()]
    table("suites", ("suite", "benchmarks", "paper"), [(s.name, len(s.benchmarks), s.paper) for s in suites])
    benchmarks = [benchmark for suite in suites for benchmark in suite.benchmarks]
    _show_counts("benchmarks", benchmarks, None)
    note("more of one: biosqueeze tasks blurb, or biosqueeze tasks blurb/hoc; used as: finetune --task blurb/hoc")
    return Outcome(DIRECTORY, {"suites": {suite.name: _suite_facts(suite, None) for suite in suites}})


def _show_suite(suite: Suite, root: Path | None) -> Outcome:
    note(f"{suite.title}\n{suite.paper}\n{suite.url}")
    _show_counts(suite.name, suite.benchmarks, root)
    note("where to get it:")
    for benchmark in suite.benchmarks:
        _say_source(benchmark)
    note("\nthe paper's hyperparameters, for base models:")
    for hyper, of in _grouped(suite.benchmarks).items():
        note(f"  {', '.join(of) if len(of) < len(suite.benchmarks) else 'all'}: {hyper}")
    _show_published(suite, suite.benchmarks)
    return Outcome(suite.path, _suite_facts(suite, root))


def _show_benchmark(benchmark: Benchmark, root: Path | None) -> Outcome:
    suite = load_suite(benchmark.suite)
    note(f"{benchmark.title}, as in {suite.paper}\n{suite.url}")
    _show_counts(benchmark.key, [benchmark], root)
    note(f"  metric           {benchmark.metric} (the paper's {benchmark.paper_metric})")
    note(f"  task type        {benchmark.group}")
    note(f"  hyperparameters  {_hyper_line(benchmark)}")
    if benchmark.note:
        note(f"  note             {benchmark.note}")
    _say_source(benchmark)
    _show_published(suite, [benchmark])
    return Outcome(suite.path, _benchmark_facts(benchmark, root))


def _show_counts(title: str, benchmarks: Sequence[Benchmark], root: Path | None) -> None:
    """Kind, metric and counts of benchmarks, and where they are under a root, if there is one."""
    used = [split for split in _SPLITS if any(split in benchmark.counts for benchmark in benchmarks)]
    columns = ("benchmark", "kind", "metric", *used, "of", "data", *(["found in"] if root else []))
    rows = [
        (
            benchmark.key,
            benchmark.kind,
            benchmark.metric,
            *(f"{benchmark.counts[split]:,}" if split in benchmark.counts else "" for split in used),
            benchmark.unit,
            benchmark.access,
            *([_found(benchmark, root) or "-"] if root else []),
        )
        for benchmark in benchmarks
    ]
    table(title, columns, rows)


def _say_source(benchmark: Benchmark) -> None:
    access = {"open": "", "registration": "; needs a registration", "agreement": "; needs a signed agreement"}
    note(f"  {benchmark.name}: {' or '.join(benchmark.sources)}")
    note(f"    licence: {benchmark.licence}{access[benchmark.access]}; looked for in {', '.join(benchmark.folders)}")


def _grouped(benchmarks: Iterable[Benchmark]) -> dict[str, list[str]]:
    """Names of benchmarks by what is said of their hyperparameters."""
    groups: dict[str, list[str]] = {}
    for benchmark in benchmarks:
        groups.setdefault(_hyper_line(benchmark), []).append(benchmark.name)
    return groups


def _hyper_line(benchmark: Benchmark) -> str:
    hyper = benchmark.hyper
    epochs = f"{hyper.epochs_from:g} to {hyper.epochs:g}" if hyper.epochs and hyper.epochs_from else hyper.epochs
    words = [
        f"lr {' or '.join(f'{rate:g}'.replace('e-0', 'e-') for rate in hyper.learning_rates)}",
        f"batch {' or '.join(map(str, hyper.batch_sizes))}",
        f"epochs {epochs or 'not said'}",
        f"max length {hyper.max_length or 'not said'}",
        f"{hyper.reported} of {hyper.runs} runs" if hyper.runs > 1 else hyper.reported,
        *(f"{name.replace('_', ' ')} {value}" for name, value in benchmark.formulation.items()),
        *([hyper.note] if hyper.note else []),
    ]
    return "; ".join(words)


def _show_published(suite: Suite, benchmarks: Sequence[Benchmark]) -> None:
    rows = [
        (_row_name(benchmark, row), *(f"{x:.2f}" for x in row.scores.values()))
        for benchmark in benchmarks
        for row in benchmark.published
    ]
    if len(benchmarks) == len(suite.benchmarks):
        printed = [average for average in suite.averages if average.printed]
        rows += [(average.name, *(f"{x:.2f}" for x in average.printed.values())) for average in printed]
    table("published, in percent", ("", *suite.models), rows)


def _row_name(benchmark: Benchmark, row: Published) -> str:
    several = len(benchmark.published) > 1
    return " ".join(filter(None, [benchmark.name, row.metric if several else "", row.setting]))


def _found(benchmark: Benchmark, root: Path) -> str | None:
    found = locate(benchmark, root)
    return str(found) if found else None


def _suite_facts(suite: Suite, root: Path | None) -> dict[str, Any]:
    return {
        "title": suite.title,
        "paper": suite.paper,
        "url": suite.url,
        "averages": {average.name: dict(average.printed) for average in suite.averages},
        "benchmarks": {benchmark.key: _benchmark_facts(benchmark, root) for benchmark in suite.benchmarks},
    }


def _benchmark_facts(benchmark: Benchmark, root: Path | None) -> dict[str, Any]:
    return {**dataclasses.asdict(benchmark), **({"found": _found(benchmark, root)} if root else {})}


def _inspect(options: Options, source: str) -> Outcome:
    """Read a data set and show what it holds."""
    from biosqueeze.benchmarks.statistics import survey
    from biosqueeze.benchmarks.suite import count, warn_of_counts
    from biosqueeze.tasks import open_task
    from biosqueeze.tasks.sniffing import guess, read_available

    form = Formulation.from_options(options)
    kind, benchmark = resolve(options.task) if options.task else (None, None)
    others: tuple[str, ...] = ()
    if kind is None:
        guessed = guess(source, form)
        kind, others = guessed.kind, guessed.others
        also = f"; {' and '.join(others)} would read it too" if others else ""
        warn(f"{source} is read as {kind}, which is a guess{also}; say which it is with --task")
    data = read_available(open_task(kind, form), source)
    facts = {"kind": kind, "guessed": options.task is None, "other_kinds": list(others), **survey(data, kind)}
    _show_survey(source, facts)
    if benchmark is not None:
        facts["counts"] = count(data, benchmark.unit, options.negative) if benchmark.unit else {}
        facts["differences"] = warn_of_counts(benchmark, data, options.negative)
        _say_compared(benchmark, facts["counts"], facts["differences"])
    return Outcome(Path(source), facts)


def _say_compared(benchmark: Benchmark, counts: Mapping[str, int], differences: Sequence[str]) -> None:
    if not benchmark.counts:
        note(f"{benchmark.key}: the paper gives no counts to compare with")
    elif not differences:
        said = ", ".join(f"{split} {number:,}" for split, number in counts.items())
        note(f"{benchmark.key}: as many {benchmark.unit} as the paper counts ({said})")


def _show_survey(source: str, facts: Mapping[str, Any]) -> None:
    splits: Mapping[str, Any] = facts["splits"]
    rows: list[tuple[str, ...]] = [("examples", *(f"{s['examples']:,}" for s in splits.values()))]
    for name in ("longest", "median", "mean"):
        rows.append((f"words, {name}", *(f"{s['words'][name]:,}" for s in splits.values())))
    note(f"{source}: {facts['kind']}, written as {facts['scheme']}")
    table("", ("", *splits), rows)
    table("labels", ("label", *splits), _label_rows(splits))
    table("examples by their length in words", ("words", *splits, "of all"), _histogram_rows(splits))
    for overlap in facts["overlaps"]:
        said = f"{overlap['shared']:,} of {overlap['texts']:,} {overlap['of']} texts are in {overlap['in']} too"
        much = overlap["shared"] > _MUCH_SHARED * overlap["texts"]
        (warn if much else note)(f"{source}: {said} (of four words or more, but for capitals)")


def _label_rows(splits: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A row for each label of any split, the most frequent of the first split first."""
    labels = dict.fromkeys(label for split in splits.values() for label in split["golds"])
    return [(label, *(_short(split["golds"].get(label, 0)) for split in splits.values())) for label in labels]


def _histogram_rows(splits: Mapping[str, Any]) -> list[tuple[str, ...]]:
    histograms = [split["words"]["histogram"] for split in splits.values()]
    tops = sorted({int(top) for histogram in histograms for top in histogram})
    total = sum(sum(histogram.values()) for histogram in histograms)
    rows = []
    for top in tops:
        each = [histogram.get(str(top), 0) for histogram in histograms]
        share = sum(each) / total
        rows.append((f"up to {top:,}", *(f"{n:,}" for n in each), f"{share:6.1%} {'#' * round(share * _BAR)}"))
    return rows


def _short(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
