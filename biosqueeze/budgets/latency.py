"""Predict the time of any shape from the measured times of a few.

The time of a model is linear in its number of layers: two depths give that of a layer, and that of embeddings and head.
The time of a layer is linear in its neurons at a given width. What embeddings, head and a neuron take is linear in the
width: they are measured at the smallest and the largest. Of the layers with all neurons, measured at four widths, the
roots of the times are interpolated: that is exact for what grows with the square of the width, such as the projections
of attention, and 3% off at most between two widths of which one is twice the other for what grows with the width
itself.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from biosqueeze.budgets.shapes import Shape

_DEPTH = 4  # measured layers: one more is the mean of three, such as the two local and one global of a ModernBERT
_LEAST_MS = 1e-3


def measured_shapes(shapes: Sequence[Shape]) -> tuple[Shape, ...]:
    """Return the shapes to measure: four widths; at the first and the last two depths and two numbers of neurons.

    Args:
        shapes: a grid of sizes, in which the measured ones are.
    """
    least, own = min(shapes), max(shapes)
    depth = min(_DEPTH, own.layers)
    all_heads, all_ffn = (sorted({getattr(shape, name) for shape in shapes}) for name in ("heads", "ffn"))
    widths = (own.heads, *(_nearest(all_heads, own.heads / part) for part in (2, 4)), least.heads)
    found = [Shape(depth, heads, own.ffn) for heads in widths]
    for heads in (own.heads, least.heads):
        found += [Shape(1, heads, own.ffn), Shape(depth, heads, _nearest(all_ffn, own.ffn / 4))]
    return tuple(dict.fromkeys(found))


def _nearest(sizes: Sequence[int], wanted: float) -> int:
    return min(sizes, key=lambda size: abs(size - wanted))


class LatencyTable:
    """Measured times, and those that are predicted from them. Noise makes no part of a model faster than nothing."""

    def __init__(self, milliseconds: Mapping[Shape, float], original: float | None = None) -> None:
        """Fit the times.

        Args:
            milliseconds: of the shapes of `measured_shapes`.
            original: of one layer of the original's width, with its vocabulary, if the others have a new one.
        """
        self._largest = max(milliseconds)
        self._ends = sorted(
            {shape.heads for shape in milliseconds if shape.ffn < self._largest.ffn} or {self._largest.heads}
        )
        fits = [self._fit({s: ms for s, ms in milliseconds.items() if s.heads == heads}) for heads in self._ends]
        self._bases, self._neurons = zip(*fits, strict=True)
        whole = {s.heads: ms for s, ms in sorted(milliseconds.items()) if s[::2] == self._largest[::2]}
        self._heads = list(whole)
        self._roots = [max(0.0, (ms - self._base(heads)) / self._largest.layers) ** 0.5 for heads, ms in whole.items()]
        first = milliseconds[Shape(1, self._largest.heads, self._largest.ffn)]
        self._vocabulary = 0.0 if original is None else original - first

    def _fit(self, times: Mapping[Shape, float]) -> tuple[float, float]:
        """Return the time of embeddings and head at one width, and that of a neuron."""
        depth, heads, ffn = max(times)
        narrow = min(shape.ffn for shape in times)
        shallow, deep = times[Shape(1, heads, ffn)], times[Shape(depth, heads, ffn)]
        layer = (deep - shallow) / (depth - 1) if depth > 1 else shallow
        saved = max(0.0, deep - times[Shape(depth, heads, narrow)])
        return max(0.0, shallow - layer), saved / (depth * max(1, ffn - narrow))

    def _base(self, heads: int) -> float:
        return float(np.interp(heads, self._ends, self._bases))

    def contradiction(self) -> str | None:
        """Return which times of the parts of a layer cannot both be right; None where all are plausible."""
        for heads, root in zip(self._heads, self._roots, strict=True):
            layer = root**2
            neurons = float(np.interp(heads, self._ends, self._neurons)) * self._largest.ffn
            if layer <= neurons:
                return f"a layer of {heads} heads takes {layer:.3g} ms, and its neurons alone {neurons:.3g} ms"
        return None

    def predict(self, shape: Shape) -> float:
        """Return the milliseconds of a shape."""
        layer = float(np.interp(shape.heads, self._heads, self._roots)) ** 2
        neuron = float(np.interp(shape.heads, self._ends, self._neurons))
        layer = max(0.0, layer - neuron * (self._largest.ffn - shape.ffn))
        return max(_LEAST_MS, self._base(shape.heads) + shape.layers * layer)

    def original(self, own: Shape) -> float:
        """Return the milliseconds of the original, with its own vocabulary."""
        return max(_LEAST_MS, self.predict(own) + self._vocabulary)
