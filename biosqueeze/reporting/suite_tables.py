"""Show the named benchmarks as tables: counts, sources, hyperparameters and published scores. Torch-free."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from biosqueeze.benchmarks.directories import locate
from biosqueeze.benchmarks.suite import ALL_SPLITS, Benchmark, Published, Suite
from biosqueeze.options import Block
from biosqueeze.text_table import TextTable

_SPLITS = ("train", "dev", "test", ALL_SPLITS)
_ACCESS = {"open": "", "registration": "; needs a registration", "agreement": "; needs a signed agreement"}


def show_suites(suites: Sequence[Suite]) -> list[Block]:
    """Return all suites and all their benchmarks."""
    rows = tuple((suite.name, str(len(suite.benchmarks)), suite.paper) for suite in suites)
    return [
        TextTable("suites", ("suite", "benchmarks", "paper"), rows),
        _counts("benchmarks", [benchmark for suite in suites for benchmark in suite.benchmarks]),
        "details: biosqueeze tasks blurb, or biosqueeze tasks blurb/hoc; "
        "to use one: biosqueeze finetune CHECKPOINT --task blurb/hoc --data DIRECTORY",
    ]


def show_suite(suite: Suite, root: Path | None) -> list[Block]:
    """Return one suite; with a root, also where its data are below it."""
    hyperparameters = [
        f"  {', '.join(names) if len(names) < len(suite.benchmarks) else 'all'}: {text}"
        for text, names in _by_hyperparameters(suite.benchmarks).items()
    ]
    return [
        f"{suite.title}\n{suite.paper}\n{suite.url}\n",
        _counts(suite.name, suite.benchmarks),
        "sources:",
        *(_source(benchmark, root) for benchmark in suite.benchmarks),
        "\n".join(["\nthe paper's hyperparameters, for base models:", *hyperparameters, ""]),
        _published(suite, suite.benchmarks),
    ]


def show_benchmark(suite: Suite, benchmark: Benchmark, root: Path | None) -> list[Block]:
    """Return one benchmark; with a root, also where its data are below it."""
    return [
        f"{benchmark.title}, as in {suite.paper}\n{suite.url}\n",
        _counts(benchmark.key, [benchmark]),
        f"  metric           {benchmark.metric} (the paper's {benchmark.paper_metric})",
        f"  task type        {benchmark.group}",
        f"  hyperparameters  {_hyperparameters_text(benchmark)}",
        *([f"  note             {benchmark.note}"] if benchmark.note else []),
        *([f"  published        scores of {benchmark.published_on}"] if benchmark.published_on else []),
        f"{_source(benchmark, root)}\n",
        _published(suite, [benchmark]),
    ]


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


def _counts(title: str, benchmarks: Sequence[Benchmark]) -> TextTable:
    """Return kind, metric and counts of benchmarks."""
    splits = [split for split in _SPLITS if any(split in benchmark.counts for benchmark in benchmarks)]
    rows = tuple(
        (
            benchmark.key,
            benchmark.kind,
            benchmark.metric,
            *(f"{benchmark.counts[split]:,}" if split in benchmark.counts else "" for split in splits),
            benchmark.unit,
            benchmark.access,
        )
        for benchmark in benchmarks
    )
    return TextTable(title, ("benchmark", "kind", "metric", *splits, "of", "data"), rows)


def _source(benchmark: Benchmark, root: Path | None) -> str:
    """Return where the data come from; with a root, also where they are below it."""
    lines = [
        f"  {benchmark.name}: {' or '.join(benchmark.sources)}",
        f"    licence: {benchmark.licence}{_ACCESS[benchmark.access]}; "
        f"names of its directory: {', '.join(benchmark.folders)}",
    ]
    if root:
        path = _location(benchmark, root)
        lines.append(f"    found in {path}" if path else f"    not found under {root}")
    return "\n".join(lines)


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


def _published(suite: Suite, benchmarks: Sequence[Benchmark]) -> TextTable:
    rows = [
        (_row_name(benchmark, row), *(f"{score:.2f}" for score in row.scores.values()))
        for benchmark in benchmarks
        for row in benchmark.published
    ]
    if len(benchmarks) == len(suite.benchmarks):
        printed = [average for average in suite.averages if average.printed]
        rows += [(average.name, *(f"{score:.2f}" for score in average.printed.values())) for average in printed]
    return TextTable("published, in percent", ("", *suite.models), tuple(rows))


def _row_name(benchmark: Benchmark, row: Published) -> str:
    metric = row.metric if len(benchmark.published) > 1 else ""
    split = f"({benchmark.published_on.partition(',')[0]})" if benchmark.published_on else ""
    return " ".join(filter(None, [benchmark.name, metric, row.setting, split]))
