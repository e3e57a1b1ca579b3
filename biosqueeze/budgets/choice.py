"""Choose among the shapes: the one that fits a budget and keeps the most importance, and the Pareto front."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from biosqueeze.budgets.budget import Budget, Quantity
from biosqueeze.budgets.counts import Counts
from biosqueeze.budgets.shapes import Shape
from biosqueeze.errors import UsageError


@dataclass(frozen=True)
class Candidate:
    """A shape, and what it costs."""

    shape: Shape
    counts: Counts

    def cost(self, quantity: Quantity) -> float:
        """Return what it takes of a quantity."""
        return self.counts.parameters if quantity == "parameters" else self.counts.flops


@dataclass(frozen=True)
class Candidates:
    """All shapes of a model, and the original before any cut."""

    original: Candidate
    all: tuple[Candidate, ...]
    """Its own shape included, with the new vocabulary where there is one."""
    describe: Callable[[Candidate], str]
    """A shape and its cost in words."""

    @property
    def smallest(self) -> Shape:
        """The shape that all others cover."""
        return min(candidate.shape for candidate in self.all)

    def fitting(self, budget: Budget) -> tuple[Candidate, ...]:
        """Return the shapes that fit a budget.

        Raises:
            UsageError: none does, or the original's own shape does.
        """
        limit = budget.limit(self.original.cost(budget.quantity))
        found = tuple(each for each in self.all if each.cost(budget.quantity) <= limit)
        if not found:
            raise UsageError(self._too_small(budget))
        if any(each.shape == self.original.shape for each in found):
            raise UsageError(self._too_large(budget, max(found, key=lambda each: each.shape)))
        return found

    def _too_small(self, budget: Budget) -> str:
        least = min(self.all, key=lambda each: each.cost(budget.quantity))
        more = "; a smaller vocabulary has fewer (--vocab-keep)" if budget.quantity == "parameters" else ""
        value = budget.least(least.cost(budget.quantity), self.original.cost(budget.quantity))
        return f"{budget.flag} is out of reach: the smallest shape, {self.describe(least)}; give {value}{more}"

    def _too_large(self, budget: Budget, own: Candidate) -> str:
        vocabulary = " with the new vocabulary" if own.counts != self.original.counts else ""
        return (
            f"{budget.flag} is met without a cut: the model{vocabulary}, {self.describe(own)}; give a tighter budget, "
            "or leave it out"
        )


def best(fitting: Sequence[Candidate], quantity: Quantity, kept: Callable[[Shape], float]) -> Candidate:
    """Return the candidate that keeps the most importance; of equal ones the cheapest, then the deepest."""
    return max(fitting, key=lambda each: (kept(each.shape), -each.cost(quantity), each.shape))


def pareto_front(
    candidates: Sequence[Candidate], quantity: Quantity, kept: Callable[[Shape], float]
) -> tuple[Candidate, ...]:
    """Return the candidates than which none costs less and keeps as much, the cheapest first."""
    front: list[Candidate] = []
    most = -1.0
    for each in sorted(candidates, key=lambda each: (each.cost(quantity), -kept(each.shape), each.shape)):
        if kept(each.shape) > most:
            most = kept(each.shape)
            front.append(each)
    return tuple(front)


def largest(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return the candidates that no other covers; importance never decreases with a size, so one of them is the best.

    Args:
        candidates: of a grid of sizes.
    """
    widest: dict[tuple[int, int], Candidate] = {}
    for each in sorted(candidates, key=lambda each: each.shape):
        widest[each.shape.layers, each.shape.heads] = each
    rest = list(widest.values())
    return tuple(
        each for each in rest if not any(other is not each and other.shape.covers(each.shape) for other in rest)
    )


def thinned(candidates: Sequence[Candidate], chosen: Sequence[Candidate], most: int) -> list[Candidate]:
    """Return at most this many candidates, spread evenly, beside the chosen ones."""
    if len(candidates) > most:
        places = {round(i * (len(candidates) - 1) / (most - 1)) for i in range(most)}
        return [each for i, each in enumerate(candidates) if i in places or each in chosen]
    return list(candidates)
