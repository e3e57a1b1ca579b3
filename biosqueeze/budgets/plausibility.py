"""Check measured times against each other: other work on the machine shows as times that no sizes explain."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

_TOLERANCE = 0.25
"""By how much of its time a model may be faster than a part of it: small models differ by less than they vary."""
_MOST = 2.0
"""How many times as much time for an operation a model may take as a part of it, which fits smaller caches."""


@dataclass(frozen=True)
class TimedModel:
    """A model, and what was measured."""

    sizes: tuple[int, ...]
    """Layers, heads, neurons, vocabulary."""
    operations: int
    milliseconds: float

    def __str__(self) -> str:
        """Say what was measured."""
        layers, heads, neurons, _ = self.sizes
        return f"{self.milliseconds:.3g} ms for {layers} layers, {heads} heads and {neurons} neurons"


def contradiction(models: Sequence[TimedModel]) -> str | None:
    """Return which two times cannot both be right; None where all are plausible."""
    for whole, part in itertools.permutations(models, 2):
        if not all(mine >= its for mine, its in zip(whole.sizes, part.sizes, strict=True)):
            continue
        is_too_fast = whole.milliseconds < (1 - _TOLERANCE) * part.milliseconds
        is_too_slow = whole.milliseconds * part.operations > _MOST * part.milliseconds * whole.operations
        if is_too_fast or is_too_slow:
            return f"{whole}, but {part}, with {part.operations / whole.operations:.0%} of the operations"
    return None
