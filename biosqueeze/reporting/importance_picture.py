"""Draw the scores that a checkpoint was cut by as a picture."""

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from biosqueeze.files import open_atomic
from biosqueeze.reporting.importance import CutScores, percent_of_highest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = "Blues"
_ACCENT, _PALE, _CUT = "#08519c", "#9ecae1", "#d9822b"
_DARK = 60  # percent of the highest, above which a cell is so dark that its number is white
_LOG_RATIO = 30  # layers whose scores span more than this are drawn on a logarithmic axis
_LETTERS = 10  # of the title in an inch
_LEAST = 0.01  # percent: the lower end of a logarithmic scale


def save_picture(scores: CutScores, path: Path) -> None:
    """Write heads by layer, the sorted neurons of each layer, and layers, as a picture: .png, .svg or .pdf."""
    from matplotlib.figure import Figure

    arrays = scores.arrays
    drawn = [kind for kind in _PANELS if kind in arrays]
    widths = [2.2 + 0.36 * arrays[kind].shape[1] if kind == "heads" else 4.6 for kind in drawn]
    rows = max(len(arrays[kind]) for kind in drawn)
    figure = Figure(figsize=(sum(widths), 1.9 + 0.36 * rows), layout="constrained")
    figure.suptitle(textwrap.fill(scores.saved.summary, int(_LETTERS * sum(widths))))
    panels = figure.subplots(1, len(drawn), squeeze=False, width_ratios=widths)[0]
    for axes, kind in zip(panels, drawn, strict=True):
        _PANELS[kind](axes, scores)
        axes.set_ylabel("layer")
        axes.tick_params(length=0)
    with open_atomic(path) as file:
        figure.savefig(file, dpi=150, format=path.suffix.lstrip(".").lower())


def _draw_heads(axes: "Axes", scores: CutScores) -> None:
    """Draw the percent of each layer's most important head as numbers on colours; heads that were cut are crossed."""
    values = percent_of_highest(scores.arrays["heads"])
    axes.imshow(values, aspect="auto", cmap=_COLOURS, vmin=0, vmax=100)
    for row, column in np.ndindex(values.shape):
        value = float(values[row, column])
        axes.text(
            column, row, f"{round(value)}", ha="center", va="center", fontsize=8, color="w" if value > _DARK else "k"
        )
        if scores.heads is not None and column not in scores.heads[row]:
            axes.plot([column - 0.45, column + 0.45], [row + 0.42, row - 0.42], color=_CUT, linewidth=1.2)
    axes.set_xticks(range(values.shape[1]))
    crossed = ", crossed out where it was cut" if scores.heads is not None else ""
    axes.set_xlabel(f"head{crossed}\n% of the most important head of its layer")
    _title(axes, scores, "heads")


def _draw_neurons(axes: "Axes", scores: CutScores) -> None:
    """Draw the sorted neurons of each layer in percent of its first one, on a logarithmic scale of colours."""
    from matplotlib.colors import LogNorm

    values = percent_of_highest(-np.sort(-scores.arrays["neurons"], axis=1))
    positive = values[values > 0]
    least = float(np.quantile(positive, 0.02)) if positive.size else _LEAST
    norm = LogNorm(min(max(least, _LEAST), 50), 100, clip=True)
    image = axes.imshow(values.clip(min=_LEAST), aspect="auto", interpolation="nearest", cmap=_COLOURS, norm=norm)
    bar = axes.figure.colorbar(image, ax=axes, format="%g")
    bar.set_label("% of the most important neuron\nof the layer, logarithmic")
    axes.set_xlabel("neuron, the most important of each layer first")
    if scores.neurons is not None:
        axes.axvline(scores.neurons - 0.5, color=_CUT, linewidth=1.5)
        axes.set_xlabel(
            f"neuron, the most important of each layer first\n{scores.neurons} were kept, with this % of the importance"
        )
        for row, share in enumerate(scores.kept_neurons()):
            axes.text(
                scores.neurons,
                row,
                f"{share:.0%}",
                ha="right",
                va="center",
                fontsize=8,
                bbox={"color": "w", "alpha": 0.6, "pad": 1},
            )
    _title(axes, scores, "neurons")


def _draw_layers(axes: "Axes", scores: CutScores) -> None:
    """Draw each layer in percent of the most important one; on a logarithmic axis where a linear one hides most."""
    values, layers = percent_of_highest(scores.arrays["layers"]), scores.scored_layers()
    least, most = float(np.nanmin(values)), float(np.nanmax(values))
    is_wide = least > 0 and most / least > _LOG_RATIO
    low = least / 2 if is_wide else min(0.0, 1.1 * least)
    places = np.arange(len(values))
    axes.hlines(
        places,
        low if is_wide else 0,
        values,
        color=_PALE,
        linewidth=1 if is_wide else 3,
        linestyles=":" if is_wide else "-",
    )
    cut = np.array([scores.is_cut(layer) for layer in layers])
    axes.plot(values[~cut], places[~cut], "o", color=_ACCENT, markersize=8)
    axes.plot(values[cut], places[cut], "x", color=_CUT, markersize=8, markeredgewidth=2)
    for place, value in zip(places, values, strict=True):
        is_tried = not np.isnan(value)
        text = f"{value:.2g}" if 0 < abs(value) < 1 else f"{value:.0f}" if is_tried else "was not tried"
        end = max(0.0, value) if is_tried else low
        axes.annotate(text, (end, place), va="center", xytext=(8, 0), textcoords="offset points")
    if is_wide:
        axes.set_xscale("log")
    axes.set_xlim(low, 100 * (most / low) ** 0.2 if is_wide else 118)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_yticks(places, map(str, layers))
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.spines[["top", "right"]].set_visible(False)
    crossed = "\ncross: was cut; scored anew after each removal" if cut.any() else ""
    axes.set_xlabel(f"% of the most important layer{', logarithmic' if is_wide else ''}{crossed}")
    axes.set_title(f"layers of the model before the cut\n{len(values)} layers", fontsize="medium")


def _title(axes: "Axes", scores: CutScores, kind: str) -> None:
    labels = [f"{layer} (cut)" if scores.is_cut(layer) else str(layer) for layer in scores.saved.layers]
    axes.set_yticks(range(len(labels)), labels)
    axes.set_title(f"{kind} {scores.origin(kind)}".replace(": ", "\n"), fontsize="medium")


_PANELS: Mapping[str, Callable[["Axes", CutScores], None]] = {
    "heads": _draw_heads,
    "neurons": _draw_neurons,
    "layers": _draw_layers,
}
