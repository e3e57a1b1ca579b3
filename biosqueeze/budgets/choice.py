"""Choose among the shapes: the one that fits a budget and keeps the most importance, and the Pareto front."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from biosqueeze.budgets.budget import Budget, Quantity
from biosqueeze.budgets.counts import Counts
from biosqueeze.budgets.latency import LatencyTable
from biosqueeze.budgets.shapes import Shape
from biosqueeze.errors import UsageError


@dataclass(frozen=True)
class Candidate:
    """A shape, and what it costs."""

    shape: Shape
    hidden: int
    counts: Counts
    milliseconds: float | None = None
    """Predicted; None where no times are measured."""

    def cost(self, quantity: Quantity) -> float:
        """Return what it takes of a quantity."""
        if quantity == "milliseconds":
            return self.milliseconds or 0.0
        return self.counts.parameters if quantity == "parameters" else self.counts.flops


@dataclass(frozen=True)
class Candidates:
    """All shapes of a model, and the original before any cut."""

    original: Candidate
    all: tuple[Candidate, ...]
    """Its own shape included, with the new vocabulary where there is one."""
    projects_embeddings: bool = False
    """Whether the embeddings have a size of their own, which no shape here cuts."""

    def timed(self, table: LatencyTable) -> "Candidates":
        """Return the same with predicted times."""
        every = tuple(replace(each, milliseconds=table.predict(each.shape)) for each in self.all)
        return replace(
            self, original=replace(self.original, milliseconds=table.original(self.original.shape)), all=every
        )

    def speed_up(self, candidate: Candidate) -> float:
        """Return how many times as fast as the original a candidate is."""
        return self.original.cost("milliseconds") / candidate.cost("milliseconds")

    def describe(self, candidate: Candidate) -> str:
        """Return a shape and its costs in words."""
        layers, heads, ffn = candidate.shape
        own = self.original.shape
        flops = candidate.counts.flops / self.original.counts.flops
        costs = [f"{candidate.counts.parameters:,} parameters", f"{flops:.1%} of the operations"]
        if candidate.milliseconds is not None:
            costs.append(f"{candidate.milliseconds:.3g} ms predicted, {self.speed_up(candidate):.3g} times as fast")
        return (
            f"{layers} of {own.layers} layers, {heads} of {own.heads} heads (hidden size {candidate.hidden}) and {ffn} "
            f"of {own.ffn} neurons: {', '.join(costs)}"
        )

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
        costs = {each.cost(budget.quantity) for each in self.all}
        embeddings = (
            ", and so have smaller embeddings (--embedding, without a budget)" if self.projects_embeddings else ""
        )
        more = f"; a smaller vocabulary has fewer (--vocab-keep){embeddings}" if budget.quantity == "parameters" else ""
        if len(self.all) == 1:
            return f"{budget.flag} is out of reach: the model has {self.describe(least)}, and no smaller shape{more}"
        if len(costs) == 1:  # parameters of an ALBERT
            return (
                f"{budget.flag} is out of reach: the smallest shape has {self.describe(least)}; the layers share their "
                f"weights, so fewer layers have as many {budget.quantity}; give --flops or --speedup{more}"
            )
        value = budget.nearest(least.cost(budget.quantity), self.original.cost(budget.quantity))
        return f"{budget.flag} is out of reach: the smallest shape has {self.describe(least)}; give {value}{more}"

    def _too_large(self, budget: Budget, own: Candidate) -> str:
        vocabulary = " with the new vocabulary" if own.counts != self.original.counts else ""
        return (
            f"{budget.flag} is met without a cut: the model{vocabulary} has {self.describe(own)}; give a tighter "
            "budget, or leave it out"
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
