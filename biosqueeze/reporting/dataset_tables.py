"""Print the statistics of a data set: sizes, labels, lengths, overlaps of splits, differences from a paper."""

from collections.abc import Mapping, Sequence
from typing import Any

from biosqueeze.benchmarks.suite import Benchmark
from biosqueeze.progress import note, table, warn

_BAR_WIDTH = 24
_LARGE_OVERLAP = 0.01


def print_statistics(source: str, facts: Mapping[str, Any]) -> None:
    """Print what `benchmarks.statistics.survey` computed."""
    splits: Mapping[str, Any] = facts["splits"]
    rows: list[tuple[str, ...]] = [("examples", *(f"{split['examples']:,}" for split in splits.values()))]
    for name in ("longest", "median", "mean"):
        rows.append((f"words, {name}", *(f"{split['words'][name]:,}" for split in splits.values())))
    note(f"{source}: {facts['kind']}, written as {facts['scheme']}")
    table("", ("", *splits), rows)
    table("labels", ("label", *splits), _label_rows(splits))
    table("examples by their length in words", ("words", *splits, "of all"), _histogram_rows(splits))
    for overlap in facts["overlaps"]:
        _print_overlap(source, overlap)


def print_comparison(benchmark: Benchmark, counts: Mapping[str, int], differences: Sequence[str]) -> None:
    """Print whether the counts agree with the paper's; differences are warned of elsewhere."""
    if not benchmark.counts:
        note(f"{benchmark.key}: the paper gives no counts to compare with")
    elif not differences:
        counted = ", ".join(f"{split} {number:,}" for split, number in counts.items())
        note(f"{benchmark.key}: as many {benchmark.unit} as the paper counts ({counted})")


def _print_overlap(source: str, overlap: Mapping[str, Any]) -> None:
    shared, texts = overlap["shared"], overlap["texts"]
    message = f"{source}: {shared:,} of {texts:,} {overlap['of']} texts are in {overlap['in']} too"
    (warn if shared > _LARGE_OVERLAP * texts else note)(f"{message} (of four words or more, ignoring case)")


def _label_rows(splits: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row for each label of any split, the most frequent one of the first split first."""
    labels = dict.fromkeys(label for split in splits.values() for label in split["golds"])
    return [(label, *(_count_text(split["golds"].get(label, 0)) for split in splits.values())) for label in labels]


def _histogram_rows(splits: Mapping[str, Any]) -> list[tuple[str, ...]]:
    histograms = [split["words"]["histogram"] for split in splits.values()]
    bounds = sorted({int(bound) for histogram in histograms for bound in histogram})
    total = sum(sum(histogram.values()) for histogram in histograms)
    rows = []
    for bound in bounds:
        counts = [histogram.get(str(bound), 0) for histogram in histograms]
        share = sum(counts) / total
        bar = "#" * round(share * _BAR_WIDTH)
        rows.append((f"up to {bound:,}", *(f"{count:,}" for count in counts), f"{share:6.1%} {bar}"))
    return rows


def _count_text(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
