"""Draw the scores that a checkpoint was cut by: as tables for the terminal, and as a picture."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from biosqueeze.files import open_atomic
from biosqueeze.importance.store import SavedScores
from biosqueeze.text_table import TextTable

_BARS = "▁▂▃▄▅▆▇█"
_BINS = 16


def importance_tables(saved: SavedScores) -> tuple[TextTable, ...]:
    """Return heads by layer, a summary of each layer's neurons, and layers; the most important unit of a table is 100.

    The bars are the neurons of a layer in 16 groups of the same number, from the most important to the least.
    """
    arrays = _arrays(saved)
    tables = []
    if "heads" in arrays:
        columns = ("layer", *map(str, range(arrays["heads"].shape[1])))
        rows = zip(saved.layers, _percent(arrays["heads"]), strict=True)
        tables.append(TextTable("heads", columns, tuple((str(n), *(f"{v:.0f}" for v in row)) for n, row in rows)))
    if "neurons" in arrays:
        shares = zip(saved.layers, arrays["neurons"], strict=True)
        rows_of_neurons = tuple((str(n), _bars(row), f"{_upper_half(row):.0%}") for n, row in shares)
        tables.append(TextTable("neurons", ("layer", "most to least important", "in the upper half"), rows_of_neurons))
    if "layers" in arrays:
        values = zip(_numbers(saved), _percent(arrays["layers"]), strict=True)
        tables.append(TextTable("layers", ("layer", "importance"), tuple((str(n), f"{v:.0f}") for n, v in values)))
    return tuple(tables)


def save_picture(saved: SavedScores, path: Path) -> None:
    """Write heads by layer, and the sorted neurons of each layer, as a picture: .png, .svg or .pdf."""
    from matplotlib.figure import Figure

    arrays = _arrays(saved)
    drawn = [kind for kind in ("heads", "neurons", "layers") if kind in arrays]
    figure = Figure(figsize=(4 * len(drawn), 3.5), layout="constrained")
    for axes, kind in zip(figure.subplots(1, len(drawn), squeeze=False)[0], drawn, strict=True):
        axes.set_title(f"{kind} by {saved.layers_by if kind == 'layers' else saved.importance}")
        axes.set_ylabel("layer")
        if kind == "layers":
            axes.barh(list(map(str, _numbers(saved))), arrays[kind])
            axes.invert_yaxis()
            continue
        values = arrays[kind] if kind == "heads" else -np.sort(-arrays[kind], axis=1)
        image = axes.imshow(values, aspect="auto", interpolation="nearest")
        axes.set_yticks(range(len(saved.layers)), map(str, saved.layers))
        axes.set_xlabel("head" if kind == "heads" else "neuron, most important first")
        figure.colorbar(image, ax=axes)
    with open_atomic(path) as file:
        figure.savefig(file, dpi=150, format=path.suffix.lstrip(".").lower())


def _arrays(saved: SavedScores) -> dict[str, NDArray[np.float64]]:
    return {kind: tensor.numpy() for kind, tensor in saved.scores.items().items()}


def _numbers(saved: SavedScores) -> Sequence[int]:
    """Return the original's numbers of the layers that have a score: the kept ones, or all before the first cut."""
    count = len(saved.scores.items()["layers"])
    return saved.layers if count == len(saved.layers) else range(count)


def _percent(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values of which the highest is 100."""
    highest = values.max()
    return 100 * values / highest if highest > 0 else values


def _bars(values: NDArray[np.float64]) -> str:
    """Return the means of groups of sorted values as bars, the highest of which is full."""
    groups = [group.mean() for group in np.array_split(-np.sort(-values), min(_BINS, len(values)))]
    return "".join(_BARS[int((len(_BARS) - 1) * max(0.0, mean) / (groups[0] or 1))] for mean in groups)


def _upper_half(values: NDArray[np.float64]) -> float:
    """Return the share of a layer's importance that the more important half of its neurons has."""
    ordered = -np.sort(-values)
    total = ordered.sum()
    return float(ordered[: (len(ordered) + 1) // 2].sum() / total) if total else 0.0
