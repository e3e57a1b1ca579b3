"""Show the statistics of a data set: sizes, labels, lengths, overlaps of splits, differences from a paper."""

from collections.abc import Mapping, Sequence
from typing import Any

from biosqueeze.benchmarks.suite import Benchmark
from biosqueeze.options import Block
from biosqueeze.progress import warn
from biosqueeze.text_table import TextTable

_BAR_WIDTH = 24
_LARGE_OVERLAP = 0.01


def show_statistics(source: str, facts: Mapping[str, Any]) -> list[Block]:
    """Return what `benchmarks.statistics.dataset_statistics` computed; warn of large overlaps."""
    splits: Mapping[str, Any] = facts["splits"]
    rows: list[tuple[str, ...]] = [("examples", *(f"{split['examples']:,}" for split in splits.values()))]
    for name in ("longest", "median", "mean"):
        rows.append((f"words, {name}", *(f"{split['words'][name]:,}" for split in splits.values())))
    overlaps = [_overlap_text(source, overlap) for overlap in facts["overlaps"]]
    return [
        f"{source}: {facts['kind']}, written as {facts['scheme']}",
        TextTable("", ("", *splits), tuple(rows)),
        TextTable("labels", ("label", *splits), tuple(_label_rows(splits))),
        TextTable("examples by their length in words", ("words", *splits, "of all"), tuple(_histogram_rows(splits))),
        *filter(None, overlaps),
    ]


def show_comparison(benchmark: Benchmark, counts: Mapping[str, int], differences: Sequence[str]) -> list[Block]:
    """Return whether the counts agree with the paper's; differences are warned of elsewhere."""
    if not benchmark.counts:
        return [f"{benchmark.key}: the paper gives no counts to compare with"]
    if differences:
        return []
    counted = ", ".join(f"{split} {number:,}" for split, number in counts.items())
    return [f"{benchmark.key}: as many {benchmark.unit} as the paper counts ({counted})"]


def _overlap_text(source: str, overlap: Mapping[str, Any]) -> str:
    """Return what two splits share; of a large overlap warn instead."""
    shared, texts = overlap["shared"], overlap["texts"]
    message = (
        f"{source}: {shared:,} of {texts:,} {overlap['of']} texts are in {overlap['in']} too "
        "(of four words or more, ignoring case)"
    )
    if shared > _LARGE_OVERLAP * texts:
        warn(message)
        return ""
    return message


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
