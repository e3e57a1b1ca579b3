"""How much the units of an encoder matter, and which of them a cut keeps."""

from dataclasses import dataclass, fields

from torch import Tensor


@dataclass(frozen=True)
class UnitScores:
    """The importance of every unit, float64, higher is more important; None where an importance scores no such units.

    Query heads that share a key and a value head are one unit.
    """

    heads: Tensor | None = None
    """(layers, heads)."""
    neurons: Tensor | None = None
    """(layers, neurons) of the feed-forward network."""
    hidden: Tensor | None = None
    """(hidden,): dimensions of the residual stream, which runs through all layers."""
    layers: Tensor | None = None
    """(layers,)."""

    def items(self) -> dict[str, Tensor]:
        """Return the scores that there are, by kind of unit."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {kind: tensor for kind, tensor in values.items() if tensor is not None}


def shared_by_layers(scores: Tensor) -> Tensor:
    """Return the sum over all layers in the place of each score, (layers, units): then every layer keeps the same."""
    return scores.sum(0, keepdim=True).expand_as(scores)


KINDS = tuple(field.name for field in fields(UnitScores))
"""The kinds of units."""


@dataclass
class KeptUnits:
    """The units of the original that a narrower model has, ascending; None where all are kept."""

    heads: list[list[int]] | None = None
    """Of each layer; as in `UnitScores`."""
    neurons: list[list[int]] | None = None
    """Of each layer."""
    hidden: list[int] | None = None
