"""The share of a model's importance that a cut keeps.

Scores of unlike units do not add up: a head has the width of many neurons, and a second-order score of a whole is no
sum over its parts. So each kind of unit counts as a share of its own sum, and the shares are combined as the encoder
combines the units:

    kept = X * sum over the kept layers l of D_l * sqrt(H_l * N_l)

D_l is the layer's share of the scores of all layers: what layers add to the residual stream adds up. H_l and N_l are
the shares of that layer's heads and neurons that are kept, the most important ones; where all layers keep the same
heads, those with the highest sums over the layers. The FFN reads what attention wrote, so neither can stand in for the
other: their mean is geometric. By an arithmetic one, where scores are alike, as magnitudes are, the block that costs
more would be cut to its minimum; by a product, depth alone would be cut. X is the share of the hidden dimensions: all
of the stream passes through them. An importance that does not score a kind of unit counts each of them alike.
Negative scores, of a layer without which the loss is lower, count as zero.

No unit counts less than zero, so `kept` never decreases where a size grows.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from biosqueeze.budgets.shapes import Shape
from biosqueeze.models.cuts.unit_scores import UnitScores, shared_by_layers

LayerChoice = Callable[[int, Sequence[float]], Sequence[int]]
"""From a number of layers and the importance of each to the ones that are kept."""


class KeptImportance:
    """Shares of importance, from the scores of the original."""

    def __init__(self, scores: UnitScores, own: Shape, choose: LayerChoice, *, same_heads: bool = False) -> None:
        """Sum up the scores.

        Args:
            scores: of the original.
            own: its shape.
            choose: the layers that are kept, by these scores; a cut scores anew after each layer that it removes.
            same_heads: whether all layers keep the same heads.
        """
        self.own, self._choose = own, choose
        layers = scores.layers if scores.layers is not None else torch.ones(own.layers)
        self._layers: list[float] = _shares(layers).tolist()
        self._heads = None if scores.heads is None else _sums(scores.heads, shared=same_heads)
        self._neurons = None if scores.neurons is None else _sums(scores.neurons)
        self._hidden = None if scores.hidden is None else _sums(scores.hidden)

    def of(self, shape: Shape) -> float:
        """Return the share of the importance that a shape keeps, 1 for the original's."""
        width = shape.heads / self.own.heads
        hidden = width if self._hidden is None else float(self._hidden[round(width * (len(self._hidden) - 1))])
        heads = self._kept(self._heads, width)
        neurons = self._kept(self._neurons, shape.ffn / self.own.ffn)
        layers = self._choose(shape.layers, self._layers)
        return hidden * sum(self._layers[i] * math.sqrt(heads[i] * neurons[i]) for i in layers)

    def _kept(self, sums: Tensor | None, share: float) -> list[float]:
        """Return the share that each layer keeps of its units."""
        if sums is None:
            return [share] * self.own.layers
        kept: list[float] = sums[:, round(share * (sums.shape[1] - 1))].tolist()
        return kept


def most_important(count: int, layers: Sequence[float]) -> Sequence[int]:
    """Choose the most important layers; of equal ones the first."""
    return sorted(range(len(layers)), key=lambda layer: -layers[layer])[:count]


def _shares(scores: Tensor) -> Tensor:
    """Divide scores by their sum, along the last axis; all alike where there are none above zero."""
    positive = scores.double().clamp(min=0)
    total = positive.sum(-1, keepdim=True)
    return torch.where(total > 0, positive / total, 1 / positive.shape[-1])


def _sums(scores: Tensor, *, shared: bool = False) -> Tensor:
    """Return the share of the n units that are kept first for n = 0, 1, ..., along the last axis.

    Args:
        scores: of the units, which are kept in descending order.
        shared: whether that is the order of their sums over all layers.
    """
    order = (shared_by_layers(scores) if shared else scores).argsort(descending=True, stable=True)
    return torch.nn.functional.pad(_shares(scores).gather(-1, order).cumsum(-1), (1, 0))
