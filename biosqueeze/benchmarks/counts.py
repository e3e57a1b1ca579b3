"""Counts of a data set, compared with those in a benchmark's paper."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from biosqueeze.benchmarks.suite import ALL_SPLITS, Benchmark
from biosqueeze.progress import warn

if TYPE_CHECKING:
    from biosqueeze.tasks import Dataset


def count(dataset: "Dataset", unit: str, negative: str | None = None) -> dict[str, int]:
    """Count the units of each split.

    Args:
        dataset: as read by a kind.
        unit: one of UNITS.
        negative: the label that means no relation; recognised by its usual names if None.
    """
    if unit == "relations":
        from biosqueeze.tasks.readers.relations import negative_of

        none = negative_of(dataset.labels, negative)
        return {split: sum(e.gold != none for e in examples) for split, examples in dataset.splits.items()}
    return {split: sum(map(_UNITS_IN[unit], examples)) for split, examples in dataset.splits.items()}


def count_differences(benchmark: Benchmark, counts: Mapping[str, int]) -> list[str]:
    """Compare the counts of a data set with the paper's.

    Args:
        benchmark: its `unit` is what is counted.
        counts: by split, as returned by `count`. Missing splits are not compared; the total is compared if test is
            among them.

    Returns:
        a description of each difference.
    """
    total = {ALL_SPLITS: sum(counts.values())} if {"train", "test"} <= counts.keys() else {}
    actual = {**counts, **total}
    return [
        _difference(split, actual[split], expected, benchmark.unit)
        for split, expected in benchmark.counts.items()
        if split in actual and actual[split] != expected
    ]


def warn_of_counts(benchmark: Benchmark, dataset: "Dataset", negative: str | None = None) -> list[str]:
    """Count a data set, warn of every difference from the paper's counts, and return the differences."""
    differences = count_differences(benchmark, count(dataset, benchmark.unit, negative)) if benchmark.counts else []
    for difference in differences:
        warn(f"{benchmark.key}: {difference}" + (f"; {benchmark.note}" if benchmark.note else ""))
    return differences


def _entities(example: Any) -> int:
    from biosqueeze.tasks.encoding.tag_schemes import spans_of

    return len(spans_of(example.gold))


def _tagged_words(example: Any) -> int:
    return sum(tag != "O" for tag in example.gold)


def _one(_example: Any) -> int:
    return 1


_UNITS_IN: Mapping[str, Callable[[Any], int]] = {
    "entities": _entities,
    "words": _tagged_words,  # those in PICO elements
    "sentences": _one,
    "examples": _one,
}
UNITS = (*_UNITS_IN, "relations")  # relations are the examples whose label is not the negative one


def _difference(split: str, actual: int, expected: int, unit: str) -> str:
    subject = "the data have" if split == ALL_SPLITS else f"{split} has"
    gap = actual - expected
    return (
        f"{subject} {actual:,} {unit} where the paper counts {expected:,} "
        f"({abs(gap):,} {'more' if gap > 0 else 'fewer'}, {abs(gap) / expected:.1%})"
    )
