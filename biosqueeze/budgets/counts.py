"""Parameters and operations of many shapes, counted on few models.

Both are linear in the number of layers, and in that of neurons at a given width: three models for every number of heads
give them exactly.
"""

from typing import NamedTuple, Self

from transformers import PreTrainedConfig

from biosqueeze.budgets.shapes import Shape, config_for, own_shape
from biosqueeze.models.count import count_model
from biosqueeze.models.families import family_of
from biosqueeze.models.flops import Work, forward_flops
from biosqueeze.models.loading.load import skeleton


class Counts(NamedTuple):
    """What a model costs on any machine."""

    parameters: int
    flops: int
    """Of the forward pass over one sequence, with the head at every position."""

    def plus(self, other: Self, times: int) -> "Counts":
        """Return these and a number of times the others."""
        return Counts(self.parameters + times * other.parameters, self.flops + times * other.flops)

    def difference(self, other: Self, parts: int) -> "Counts":
        """Return the difference from others, divided by a number that it is a multiple of."""
        return Counts((self.parameters - other.parameters) // parts, (self.flops - other.flops) // parts)


class _Line(NamedTuple):
    """Counts for one number of heads."""

    first: Counts
    """Of one layer and the least neurons, with embeddings and head."""
    layer: Counts
    """Of each further layer with the least neurons."""
    neuron: Counts
    """Of each further neuron of a layer."""


class ShapeCounter:
    """Count parameters and operations of the shapes of one model."""

    def __init__(self, config: PreTrainedConfig, architecture: str, length: int) -> None:
        """Prepare to count.

        Args:
            config: of the original.
            architecture: its class.
            length: tokens of a sequence.
        """
        self.config, self.architecture, self.length = config, architecture, length
        self.own = own_shape(config)
        self._least = max(1, self.own.ffn // 2) if family_of(config).supports_narrowing else self.own.ffn
        self._lines: dict[int, _Line] = {}

    def count(self, shape: Shape) -> Counts:
        """Return the counts of a shape."""
        line = self._lines.get(shape.heads) or self._measure(shape.heads)
        self._lines[shape.heads] = line
        whole = line.first.plus(line.layer, shape.layers - 1)
        return whole.plus(line.neuron, shape.layers * (shape.ffn - self._least))

    def _measure(self, heads: int) -> _Line:
        depth = min(2, self.own.layers)
        first, deeper = (self.of(Shape(layers, heads, self._least)) for layers in (1, depth))
        wider = self.of(Shape(depth, heads, self.own.ffn))
        neurons = depth * (self.own.ffn - self._least)
        return _Line(first, deeper.difference(first, 1), wider.difference(deeper, max(1, neurons)))

    def of(self, shape: Shape) -> Counts:
        """Count on a model of that shape."""
        model = skeleton(config_for(self.config, shape), self.architecture)
        work = Work(self.length, masked=self.length, paired=True)
        return Counts(count_model(model)["total"], round(forward_flops(model, work)))
