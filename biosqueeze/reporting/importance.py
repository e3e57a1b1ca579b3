"""Draw the scores that a checkpoint was cut by as tables for the terminal.

Heads and neurons are chosen within a layer, and the scores of two layers may differ by orders of magnitude: those of a
layer are drawn as shares of its highest one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.importance.store import SavedScores
from biosqueeze.model_facts import shape_of
from biosqueeze.text_table import TextTable

Array = NDArray[np.float64]

_BARS = "▁▂▃▄▅▆▇█"
_BINS = 16
_BLOCK = "█"
_UNTRIED = "-"
_RENEWED = ", scored anew after each removal"
_BLOCK_PERCENT = 5


@dataclass(frozen=True)
class CutScores:
    """Scores, and which of the scored units the cut kept; None where it kept all, or where that is not recorded."""

    saved: SavedScores
    layers: tuple[int, ...] | None = None
    heads: tuple[frozenset[int], ...] | None = None
    """Of each row of the heads' scores."""
    neurons: int | None = None
    """How many of each layer: the most important ones."""

    @property
    def arrays(self) -> dict[str, Array]:
        """The scores by kind of unit."""
        return {kind: tensor.numpy() for kind, tensor in self.saved.scores.items().items()}

    def is_cut(self, layer: int) -> bool:
        """Return whether the cut removed a layer of the original."""
        return self.layers is not None and layer not in self.layers

    def scored_layers(self) -> Sequence[int]:
        """Return the original's numbers of the layers that have a score: the kept ones, or all before the first cut."""
        count = len(self.arrays["layers"])
        return self.saved.layers if count == len(self.saved.layers) else range(count)

    def origin(self, kind: str) -> str:
        """Return of which model the heads or neurons were scored: layers are removed before widths are cut."""
        rows, columns = self.arrays[kind].shape
        if self.layers is not None and self.saved.layers == self.layers:
            return f"of the layers that were kept, before they were narrowed: {rows} layers x {columns} {kind}"
        return f"of the model before the cut: {rows} layers x {columns} {kind}"

    def kept_heads(self) -> list[float]:
        """Return the share of each layer's importance that is in the heads that were kept."""
        pairs = zip(self.arrays["heads"], self.heads or (), strict=True)
        return [_share(row[sorted(kept)], row) for row, kept in pairs]

    def kept_neurons(self) -> list[float]:
        """Return the share of each layer's importance that is in the neurons that were kept."""
        return [_share(-np.sort(-row)[: self.neurons], row) for row in self.arrays["neurons"]]


def cut_scores(checkpoint: Checkpoint, saved: SavedScores) -> CutScores:
    """Find out from a checkpoint's history and shape which of the scored units it kept."""
    history = checkpoint.manifest.history if checkpoint.manifest else ()
    entry = next((each for each in reversed(history) if each.stage == "shrink"), None)
    scores, heads = saved.scores.items(), None
    if entry and entry.heads and "heads" in scores and len(entry.heads) == len(scores["heads"]):
        query_heads = checkpoint.config.get("num_attention_heads", 1)
        group = query_heads // checkpoint.config.get("num_key_value_heads", query_heads)  # one unit of the scores
        heads = tuple(frozenset(head // group for head in layer) for layer in entry.heads)
    ffn = shape_of(checkpoint.config).ffn
    is_narrower = "neurons" in scores and ffn is not None and ffn < scores["neurons"].shape[1]
    return CutScores(saved, entry.layers if entry else None, heads, ffn if is_narrower else None)


def percent_of_highest(values: Array) -> Array:
    """Return values of which the highest along the last axis is 100; zeros where none is above zero; NaN stays."""
    highest = np.nanmax(values, axis=-1, keepdims=True)
    percent: Array = np.divide(100 * values, highest, out=0 * values, where=highest > 0)
    return percent


def importance_tables(scores: CutScores) -> tuple[TextTable, ...]:
    """Return heads by layer, a summary of each layer's neurons, and layers, as far as they were scored."""
    tables = {"heads": _heads_table, "neurons": _neurons_table, "layers": _layers_table}
    return tuple(table(scores) for kind, table in tables.items() if kind in scores.arrays)


def _heads_table(scores: CutScores) -> TextTable:
    values = percent_of_highest(scores.arrays["heads"])
    columns = ["layer", *map(str, range(values.shape[1]))]
    rows = [[_name(scores, layer), *map(_rounded, row)] for layer, row in zip(scores.saved.layers, values, strict=True)]
    title = f"heads {scores.origin('heads')}; 100 is the most important head of its layer"
    if scores.heads is not None:
        for row, kept, share in zip(rows, scores.heads, scores.kept_heads(), strict=True):
            row[1:] = [cell if head in kept else f"x{cell}" for head, cell in enumerate(row[1:])]
            row.append(f"{share:.0%}")
        columns.append("importance kept")
        title += ", x was cut"
    return TextTable(title, tuple(columns), tuple(map(tuple, rows)), right_aligned=True)


def _neurons_table(scores: CutScores) -> TextTable:
    """Return bars of groups of about the same number of neurons; those of the kept and of the cut ones apart."""
    ordered = -np.sort(-scores.arrays["neurons"], axis=1)
    total = ordered.shape[1]
    bins, kept = min(_BINS, total), scores.neurons or total
    split = min(max(1, round(bins * kept / total)), bins - (kept < total))
    title = (
        f"neurons {scores.origin('neurons')}; a bar is the mean of about {round(total / bins)} of them, the most "
        "important first, and one step lower is half as important"
    )
    groups = [*np.array_split(np.arange(kept), split), *np.array_split(np.arange(kept, total), max(1, bins - split))]
    drawn = [_bars([row[group] for group in groups if len(group)]) for row in ordered]
    columns: tuple[str, ...]
    cells: list[tuple[str, ...]]
    if kept == total:
        columns = ("layer", f"{total} neurons", "importance in the upper half")
        halves = (_share(row[: (total + 1) // 2], row) for row in ordered)
        cells = [(bars, f"{half:.0%}") for bars, half in zip(drawn, halves, strict=True)]
    else:
        columns = ("layer", f"{kept} kept", f"{total - kept} cut", "importance kept")
        cells = [
            (bars[:split], bars[split:], f"{share:.0%}")
            for bars, share in zip(drawn, scores.kept_neurons(), strict=True)
        ]
    names = [_name(scores, layer) for layer in scores.saved.layers]
    return TextTable(title, columns, tuple((name, *row) for name, row in zip(names, cells, strict=True)))


def _layers_table(scores: CutScores) -> TextTable:
    values = percent_of_highest(scores.arrays["layers"])
    cut = ", x was cut" if any(map(scores.is_cut, scores.scored_layers())) else ""
    rows = [
        (_name(scores, layer), _rounded(value), _BLOCK * round(max(0.0, np.nan_to_num(value)) / _BLOCK_PERCENT))
        for layer, value in zip(scores.scored_layers(), values, strict=True)
    ]
    untried = f", {_UNTRIED} was not tried" if np.isnan(values).any() else ""
    title = f"layers of the model before the cut{_RENEWED if cut else ''}; 100 is the most important one{cut}{untried}"
    return TextTable(title, ("layer", "importance", f"a block is {_BLOCK_PERCENT}"), tuple(rows))


def _name(scores: CutScores, layer: int) -> str:
    return f"x{layer}" if scores.is_cut(layer) else str(layer)


def _rounded(value: float) -> str:
    return (
        _UNTRIED if math.isnan(value) else str(round(value))
    )  # a format would print a loss that is a little lower as -0


def _bars(groups: Sequence[Array]) -> str:
    """Return the means of groups as bars: a full one for the first, and one step lower for half as much."""
    means = [float(group.mean()) for group in groups]
    steps = (round(math.log2(means[0] / mean)) if mean > 0 else len(_BARS) for mean in means)
    return "".join(_BARS[max(0, len(_BARS) - 1 - step)] for step in steps)


def _share(part: Array, whole: Array) -> float:
    """Return the share of the scores above zero that is in a part of them."""
    total = whole.clip(min=0).sum()
    return float(part.clip(min=0).sum() / total) if total else 0.0
