"""Print the named benchmarks as tables: counts, sources, hyperparameters and published scores. Torch-free."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from biosqueeze.benchmarks.directories import locate
from biosqueeze.benchmarks.suite import ALL_SPLITS, Benchmark, Published, Suite
from biosqueeze.progress import note, table

_SPLITS = ("train", "dev", "test", ALL_SPLITS)
_ACCESS = {"open": "", "registration": "; needs a registration", "agreement": "; needs a signed agreement"}


def print_suites(suites: Sequence[Suite]) -> None:
    """Print all suites and all their benchmarks."""
    table("suites", ("suite", "benchmarks", "paper"), [(s.name, len(s.benchmarks), s.paper) for s in suites])
    _print_counts("benchmarks", [benchmark for suite in suites for benchmark in suite.benchmarks], None)
    note("details: biosqueeze tasks blurb, or biosqueeze tasks blurb/hoc; to use one: finetune --task blurb/hoc")


def print_suite(suite: Suite, root: Path | None) -> None:
    """Print one suite; with a root, also where its data are below it."""
    note(f"{suite.title}\n{suite.paper}\n{suite.url}")
    _print_counts(suite.name, suite.benchmarks, root)
    note("sources:")
    for benchmark in suite.benchmarks:
        _print_source(benchmark)
    note("\nthe paper's hyperparameters, for base models:")
    for hyperparameters, names in _by_hyperparameters(suite.benchmarks).items():
        note(f"  {', '.join(names) if len(names) < len(suite.benchmarks) else 'all'}: {hyperparameters}")
    _print_published(suite, suite.benchmarks)


def print_benchmark(suite: Suite, benchmark: Benchmark, root: Path | None) -> None:
    """Print one benchmark; with a root, also where its data are below it."""
    note(f"{benchmark.title}, as in {suite.paper}\n{suite.url}")
    _print_counts(benchmark.key, [benchmark], root)
    note(f"  metric           {benchmark.metric} (the paper's {benchmark.paper_metric})")
    note(f"  task type        {benchmark.group}")
    note(f"  hyperparameters  {_hyperparameters_text(benchmark)}")
    if benchmark.note:
        note(f"  note             {benchmark.note}")
    _print_source(benchmark)
    _print_published(suite, [benchmark])


def suite_facts(suite: Suite, root: Path | None) -> dict[str, Any]:
    """Return a suite as JSON."""
    return {
        "title": suite.title,
        "paper": suite.paper,
        "url": suite.url,
        "averages": {average.name: dict(average.printed) for average in suite.averages},
        "benchmarks": {benchmark.key: benchmark_facts(benchmark, root) for benchmark in suite.benchmarks},
    }


def benchmark_facts(benchmark: Benchmark, root: Path | None) -> dict[str, Any]:
    """Return a benchmark as JSON; with a root, also where its data are below it."""
    return {**dataclasses.asdict(benchmark), **({"found": _location(benchmark, root)} if root else {})}


def _location(benchmark: Benchmark, root: Path) -> str | None:
    path = locate(benchmark, root)
    return str(path) if path else None


def _print_counts(title: str, benchmarks: Sequence[Benchmark], root: Path | None) -> None:
    """Print kind, metric and counts of benchmarks; with a root, also where their data are below it."""
    splits = [split for split in _SPLITS if any(split in benchmark.counts for benchmark in benchmarks)]
    columns = ("benchmark", "kind", "metric", *splits, "of", "data", *(["found in"] if root else []))
    rows = [
        (
            benchmark.key,
            benchmark.kind,
            benchmark.metric,
            *(f"{benchmark.counts[split]:,}" if split in benchmark.counts else "" for split in splits),
            benchmark.unit,
            benchmark.access,
            *([_location(benchmark, root) or "-"] if root else []),
        )
        for benchmark in benchmarks
    ]
    table(title, columns, rows)


def _print_source(benchmark: Benchmark) -> None:
    note(f"  {benchmark.name}: {' or '.join(benchmark.sources)}")
    folders = ", ".join(benchmark.folders)
    note(f"    licence: {benchmark.licence}{_ACCESS[benchmark.access]}; names of its directory: {folders}")


def _by_hyperparameters(benchmarks: Iterable[Benchmark]) -> dict[str, list[str]]:
    """Group the names of benchmarks by their hyperparameters."""
    groups: dict[str, list[str]] = {}
    for benchmark in benchmarks:
        groups.setdefault(_hyperparameters_text(benchmark), []).append(benchmark.name)
    return groups


def _hyperparameters_text(benchmark: Benchmark) -> str:
    hyper = benchmark.hyper
    epochs = f"{hyper.epochs_from:g} to {hyper.epochs:g}" if hyper.epochs and hyper.epochs_from else hyper.epochs
    words = [
        f"lr {' or '.join(f'{rate:g}'.replace('e-0', 'e-') for rate in hyper.learning_rates)}",
        f"batch {' or '.join(map(str, hyper.batch_sizes))}",
        f"epochs {epochs or 'not given'}",
        f"max length {hyper.max_length or 'not given'}",
        f"{hyper.reported} of {hyper.runs} runs" if hyper.runs > 1 else hyper.reported,
        *(f"{name.replace('_', ' ')} {value}" for name, value in benchmark.formulation.items()),
        *([hyper.note] if hyper.note else []),
    ]
    return "; ".join(words)


def _print_published(suite: Suite, benchmarks: Sequence[Benchmark]) -> None:
    rows = [
        (_row_name(benchmark, row), *(f"{score:.2f}" for score in row.scores.values()))
        for benchmark in benchmarks
        for row in benchmark.published
    ]
    if len(benchmarks) == len(suite.benchmarks):
        printed = [average for average in suite.averages if average.printed]
        rows += [(average.name, *(f"{score:.2f}" for score in average.printed.values())) for average in printed]
    table("published, in percent", ("", *suite.models), rows)


def _row_name(benchmark: Benchmark, row: Published) -> str:
    metric = row.metric if len(benchmark.published) > 1 else ""
    return " ".join(filter(None, [benchmark.name, metric, row.setting]))
