"""Plots as inline SVG, drawn by matplotlib's object interface, without pyplot and its global state.

The colours of text and grid are CSS variables of the page, so that a plot follows the page from light to dark.
"""

import io
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from biosqueeze.reporting.curves import Array, Curves, smoothed, speed, thinned
from biosqueeze.summaries import score_name

COLOURS = ("#3b82c4", "#d9822b", "#3a9d6e", "#c2568f", "#8a6cc9", "#2a9d9d", "#b5793f", "#cf5c5c")
_MARKERS = "osD^vPXp"
_SIZES = (8, 13)  # alternating, so that two markers in one place are both visible
# Placeholders, used by no palette, that `_as_markup` replaces by variables of the page's style.
_INK, _MUTED, _GRID = "#010203", "#040506", "#070809"
_VARIABLES = {_INK: "var(--ink)", _MUTED: "var(--muted)", _GRID: "var(--line)"}
_ROUND = (1, 2, 5, 10)  # ticks are multiples of these
_LOG_RATIO = 30  # curves that span more than this are drawn on a logarithmic axis
_LEFT, _RIGHT, _WHOLE = 68, 59, 140  # characters of a legend that fit above the axes of the upper row, or above one
_HANDLE, _ROW_POINTS = 6, 17  # of a legend: characters as wide as a handle and its spaces, and the height of a row
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_STYLE: Any = {
    "figure.constrained_layout.w_pad": 0.1,
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.hspace": 0.05,
    "figure.constrained_layout.wspace": 0.03,
    "svg.fonttype": "none",
    "svg.hashsalt": "biosqueeze",
    "text.parse_math": False,
    "text.color": _INK,
    "font.family": "sans-serif",
    "font.size": 9.5,
    "axes.edgecolor": _GRID,
    "axes.facecolor": "none",
    "axes.labelcolor": _MUTED,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": _INK,
    "axes.titlepad": 8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": False,
    "grid.color": _GRID,
    "grid.linewidth": 0.7,
    "xtick.color": _GRID,
    "ytick.color": _GRID,
    "xtick.labelcolor": _MUTED,
    "ytick.labelcolor": _MUTED,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.handlelength": 1.4,
    "legend.labelspacing": 0.8,
    "legend.columnspacing": 1.2,
}


@dataclass(frozen=True)
class Point:
    """One checkpoint (a colour) on one backend (a marker) in a panel of `tradeoff_plot`."""

    checkpoint: str
    backend: str
    x: float
    y: float


@dataclass(frozen=True)
class Panel:
    """A scatter plot of scores against a cost."""

    title: str
    x_label: str
    y_label: str
    points: tuple[Point, ...]


def training_plot(curves: Curves, metric: str | None = None, kept: int | None = None) -> Markup:
    """Draw losses, dev scores, learning rate and speed of one run against the optimiser's steps.

    Args:
        curves: of the run.
        metric: the score that selected the weights; where it is not among those on dev, the last one.
        kept: the step whose weights were kept; None where no dev score selected them.
    """
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(10.4, 5.9), layout="constrained")
        grid = figure.add_gridspec(2, 2, height_ratios=(1.25, 1), width_ratios=(1.15, 1))
        has_scores = bool(curves.dev_names or curves.probes)
        losses = figure.add_subplot(grid[0, 0] if has_scores else grid[0, :])
        _draw_losses(losses, curves)
        widths = {losses: _LEFT if has_scores else _WHOLE}
        if has_scores:
            scores = figure.add_subplot(grid[0, 1])
            _draw_scores(scores, curves, metric, kept)
            widths[scores] = _RIGHT
        _add_legends(widths)
        _draw_rate(figure.add_subplot(grid[1, 0]), curves)
        _draw_speed(figure.add_subplot(grid[1, 1]), curves)
        return _as_markup(figure)


def _draw_losses(axes: Axes, curves: Curves) -> None:
    """Draw each term, smoothed, over its raw values; the total only where there are several terms."""
    terms = dict(curves.terms)
    if len(terms) == 2 and "loss" in terms:
        del terms["loss"]
    smooth = {name: smoothed(values) for name, values in terms.items()}
    if _is_wide(tuple(smooth.values())):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    colours = iter(COLOURS * len(terms))
    for name, values in terms.items():
        colour = _INK if name == "loss" else next(colours)
        axes.plot(*thinned(curves.steps, values), color=colour, alpha=0.22, linewidth=0.6)
        line, label = smooth[name], "total" if name == "loss" else _legend_text(name)
        axes.plot(*thinned(curves.steps, line), color=colour, linewidth=1.8, label=label)
    for index, name in enumerate(curves.dev_losses):
        held_out = [scores.get(name, np.nan) for _, scores in curves.dev]
        label = f"{_legend_text(name)}, held out"
        axes.plot([step for step, _ in curves.dev], held_out, f"{_MARKERS[index % 8]}--", color=_INK, label=label)
    if terms:
        _limit(axes, tuple(smooth.values()), tuple(terms.values()))
    _finish(axes, curves, "Training loss", "loss, mean over a batch")


def _is_wide(lines: Sequence[Array]) -> bool:
    """Return whether the curves are positive and span so much that a linear axis would flatten the lower ones."""
    if not lines:
        return False
    low, high = (float(f(np.concatenate(lines))) for f in (np.nanmin, np.nanmax))
    return low > 0 and high / low > _LOG_RATIO


def _limit(axes: Axes, smooth: Sequence[Array], raw: Sequence[Array]) -> None:
    """Set the range of the y axis so that single outliers are cut off rather than flatten the curves."""
    everything = np.concatenate(raw)
    everything = everything[np.isfinite(everything) & ((everything > 0) | (axes.get_yscale() == "linear"))]
    lines = np.concatenate(smooth)
    low = min(float(np.nanmin(lines)), float(np.quantile(everything, 0.02)))
    high = max(float(np.nanmax(lines)), float(np.quantile(everything, 0.995)))
    if axes.get_yscale() == "log":
        axes.set_ylim(low / 1.3, high * 1.3)
    elif high > low:
        axes.set_ylim(min(0.0, low), high * 1.08)


def _draw_scores(axes: Axes, curves: Curves, metric: str | None, kept: int | None) -> None:
    """Draw the scores of the dev split; of the one that selected the weights, the step that was kept is ringed.

    The scores of a pretraining, which keeps its last weights, have no ring; those of its probes are drawn too.
    """
    keeps_last = bool(curves.dev_losses or curves.probes)
    steps = [step for step, _ in curves.dev]
    names = list(curves.dev_names)
    if metric and metric not in names and any(metric in scores for _, scores in curves.dev):
        names.append(metric)  # the F1 of one label
    selected_by = metric if metric in names else names[-1] if names else None
    for index, name in enumerate(names):
        values = [scores.get(name, np.nan) for _, scores in curves.dev]
        strong = name == selected_by
        style: dict[str, Any] = (
            {"linewidth": 1.8, "markersize": 5.5} if strong else {"linewidth": 0.9, "markersize": 3.5, "alpha": 0.8}
        )
        style |= {"color": COLOURS[index % 8], "label": _legend_text(score_name(name))}
        axes.plot(steps, values, f"{_MARKERS[index % 8]}-", **style)
        if strong and kept in steps and not keeps_last:
            score = values[steps.index(kept)]
            axes.plot(kept, score, "o", markersize=12, markerfacecolor="none", markeredgecolor=_INK)
    for index, name in enumerate(dict.fromkeys(name for _, scores in curves.probes for name in scores)):
        found = [(step, scores[name]) for step, scores in curves.probes if name in scores]
        style = {"color": COLOURS[(index + len(names)) % 8], "label": _legend_text(f"probe {name}")}
        axes.plot(*zip(*found, strict=True), f"{_MARKERS[index % 8]}:", **style)
    axes.margins(y=0.12)
    _finish(axes, curves, "Held-out scores" if keeps_last else "Dev scores", "score")


def _draw_rate(axes: Axes, curves: Curves) -> None:
    """Draw the learning rate in units of a power of ten, which keeps the tick labels short."""
    highest = float(np.nanmax(curves.rate)) if np.isfinite(curves.rate).any() else 0.0
    power = math.floor(math.log10(highest)) if highest > 0 else 0
    axes.plot(*thinned(curves.steps, curves.rate / 10.0**power), color=COLOURS[4], linewidth=1.8)
    axes.set_ylim(bottom=0)
    _finish(axes, curves, "Learning rate", f"learning rate, units of 10{str(power).translate(_SUPERSCRIPTS)}")


def _draw_speed(axes: Axes, curves: Curves) -> None:
    raw = np.divide(
        curves.tokens, curves.durations, out=np.full_like(curves.tokens, np.nan), where=curves.durations > 0
    )
    smooth = speed(curves)
    axes.plot(*thinned(curves.steps, raw), color=COLOURS[2], alpha=0.22, linewidth=0.6)
    axes.plot(*thinned(curves.steps, smooth), color=COLOURS[2], linewidth=1.8)
    if np.isfinite(raw).any():
        axes.set_ylim(0, max(float(np.nanmax(smooth)), float(np.nanquantile(raw, 0.98))) * 1.1)
    axes.yaxis.set_major_formatter(FuncFormatter(_thousands))
    _finish(axes, curves, "Speed", "tokens per second")


def _finish(axes: Axes, curves: Curves, title: str, label: str) -> None:
    axes.set_title(title)
    axes.set_xlabel("optimiser step")
    axes.set_ylabel(label)
    last = float(curves.steps[-1])
    axes.set_xlim(-0.015 * last, 1.03 * last)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=_ROUND))
    axes.xaxis.set_major_formatter(FuncFormatter(_thousands))
    axes.grid(visible=False, axis="x")
    axes.tick_params(which="both", length=0)


def _add_legends(widths: Mapping[Axes, int]) -> None:
    """Put legends above their axes: at the right of the titles, or in rows below them where a title leaves no space.

    Args:
        widths: the plots side by side, and how many characters of a legend fit above each.
    """
    found = {axes: axes.get_legend_handles_labels() for axes in widths}
    found = {axes: (lines, [_cut(name, widths[axes]) for name in names]) for axes, (lines, names) in found.items()}
    fit_beside = all(
        round(1.4 * len(axes.get_title("left"))) + _legend_width(names, len(names)) <= widths[axes]
        for axes, (_, names) in found.items()
    )
    place: dict[str, Any] = (
        {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "borderaxespad": 0.1}
        if fit_beside
        else {"loc": "lower left", "bbox_to_anchor": (0.0, 1.02), "borderpad": 0, "borderaxespad": 0.0}
    )
    rows = 0
    for axes, (lines, names) in found.items():
        columns = max([1, *(n for n in range(1, len(names) + 1) if _legend_width(names, n) <= widths[axes])])
        rows = max(rows, math.ceil(len(names) / columns))
        if names:
            legend = axes.legend(lines, names, ncols=columns, **place)
            legend.set_in_layout(False)  # the title's distance makes the space, and no width is taken from the axes
    if not fit_beside:
        for axes in widths:
            axes.set_title(axes.get_title("left"), pad=8 + _ROW_POINTS * rows)


def _legend_width(names: Sequence[str], columns: int) -> int:
    """Return the width of a legend in characters; matplotlib fills it column by column."""
    filled = np.array_split(np.array([len(name) for name in names]), columns) if names else ()
    return sum(int(lengths.max()) + _HANDLE for lengths in filled)


def _cut(name: str, width: int) -> str:
    return name if len(name) + _HANDLE <= width else f"{name[: width - _HANDLE - 1]}…"


def _legend_text(name: str) -> str:
    """Return a name that a legend shows: matplotlib omits those with a leading underscore."""
    return f" {name}" if name.startswith("_") else name


def _thousands(value: float, _place: object) -> str:
    return f"{value:,.0f}"


def tradeoff_plot(panels: Sequence[Panel]) -> Markup:
    """Draw panels of score against cost side by side, with one legend below.

    Where there are more checkpoints than colours, each has a number too.
    """
    points = [point for panel in panels for point in panel.points]
    styles, numbers = _styles(points), _numbers(points)
    labels = [_legend_text(f"{numbers.get(name, '')} {name}, {backend}".lstrip(" ")) for name, backend in styles]
    widest = max(map(len, labels))
    columns = max(1, min(len(styles), 72 * len(panels) // (widest + 8)))
    with matplotlib.rc_context(_STYLE):
        height = 3.5 + 0.24 * math.ceil(len(styles) / columns)
        figure = Figure(figsize=(5.2 * len(panels), height), layout="constrained")
        for panel, axes in zip(panels, figure.subplots(1, len(panels), squeeze=False)[0], strict=True):
            _draw_points(axes, panel, styles)
            for point in panel.points if numbers else ():
                axes.annotate(
                    str(numbers[point.checkpoint]), (point.x, point.y), (8, 5), textcoords="offset points", fontsize=7.5
                )
        marks = [Line2D([], [], **style) for style in styles.values()]
        figure.legend(marks, labels, loc="outside lower center", ncols=columns)
        return _as_markup(figure)


def _numbers(points: Sequence[Point]) -> dict[str, int]:
    """Return the number of each checkpoint, from 1; empty where each has a colour of its own."""
    checkpoints = list(dict.fromkeys(point.checkpoint for point in points))
    return {name: index + 1 for index, name in enumerate(checkpoints)} if len(checkpoints) > len(COLOURS) else {}


def _styles(points: Sequence[Point]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return a colour for each checkpoint and a marker for each backend; markers are open, so that none is hidden."""
    checkpoints = list(dict.fromkeys(point.checkpoint for point in points))
    backends = list(dict.fromkeys(point.backend for point in points))
    styles: dict[tuple[str, str], dict[str, Any]] = {}
    for point in points:
        colour = COLOURS[checkpoints.index(point.checkpoint) % len(COLOURS)]
        marker = _MARKERS[backends.index(point.backend) % len(_MARKERS)]
        styles[point.checkpoint, point.backend] = {
            "marker": marker,
            "linestyle": "none",
            "markersize": _SIZES[backends.index(point.backend) % len(_SIZES)],
            "markeredgewidth": 2,
            "markeredgecolor": colour,
            "markerfacecolor": (colour, 0.2),
        }
    return styles


def _draw_points(axes: Axes, panel: Panel, styles: Mapping[tuple[str, str], dict[str, Any]]) -> None:
    for point in panel.points:
        # Not clipped: the marker of a fast or small model reaches over the axis.
        axes.plot([point.x], [point.y], clip_on=False, **styles[point.checkpoint, point.backend])
    axes.margins(y=0.18)
    axes.set_xlim(0, max(point.x for point in panel.points) * 1.12 or 1)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=_ROUND))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.4g}"))
    axes.tick_params(which="both", length=0)
    axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)


def _as_markup(figure: Figure) -> Markup:
    """Return the figure as an SVG element without size, links, metadata, or ids that two plots would share."""
    stream = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # the browser's font has it
        bare = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(stream, format="svg", transparent=True, metadata=bare)
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    for colour, variable in _VARIABLES.items():
        text = text.replace(f": {colour}", f": {variable}")  # in styles, not in a name that reads like a colour
    return Markup(text)
