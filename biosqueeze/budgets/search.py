"""Choose the shape of a cut by a budget, from a checkpoint's config and, once they are computed, its importances."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedConfig

from biosqueeze.budgets.budget import Budget, budgets_of
from biosqueeze.budgets.choice import Candidate, Candidates, best, largest, pareto_front, thinned
from biosqueeze.budgets.counts import ShapeCounter
from biosqueeze.budgets.kept import KeptImportance, LayerChoice, most_important
from biosqueeze.budgets.shapes import hidden_size, own_shape, shapes_of, widths_for
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.importance import open_importance
from biosqueeze.importance.guide import Guide, plan_guide
from biosqueeze.models.depth import choose_layers
from biosqueeze.models.families import check_length, family_of, longest_input
from biosqueeze.models.unit_scores import UnitScores
from biosqueeze.models.width import Widths
from biosqueeze.progress import note, table

_ROWS = 12
"""Of the printed tables, beside the chosen shapes."""


@dataclass(frozen=True)
class Choice:
    """The shape that was chosen for a budget."""

    budget: Budget
    candidate: Candidate
    kept: float
    """Share of the importance."""
    widths: Widths
    layers: str | None
    """How many, in the form of --layers; None where all are kept."""
    facts: dict[str, Any]
    """For the manifest."""


@dataclass(frozen=True)
class BudgetSearch:
    """The shapes of one checkpoint, and the budgets that one of them is to fit."""

    config: PreTrainedConfig
    """With the new vocabulary, where there is one."""
    guide: Guide
    budgets: tuple[Budget, ...]
    candidates: Candidates
    length: int

    def show_largest(self) -> tuple[str, ...]:
        """Print the largest shapes that fit, which are known without weights; return the steps of the plan."""
        steps = []
        for budget in self.budgets:
            fitting = self.candidates.fitting(budget)
            rows = largest(fitting)
            table(f"{budget.flag}: the largest shapes that fit", *self._table(thinned(rows, (), _ROWS)))
            steps.append(
                f"{budget.flag}: of {len(fitting):,} shapes that fit, cut to the one that keeps the most importance, "
                f"one of the {len(rows)} largest; which, the weights decide"
            )
        return (*self.guide.steps, *steps)

    def choose(self, scores: UnitScores) -> tuple[Choice, ...]:
        """Choose a shape for every budget, and print the Pareto front.

        Args:
            scores: importances of the original's units.

        Raises:
            UsageError: no shape fits, or no cut is needed.
        """
        kept = functools.cache(KeptImportance(scores, own_shape(self.config), self._layer_choice()).of)
        chosen = []
        for budget in self.budgets:
            candidate = best(self.candidates.fitting(budget), budget.quantity, kept)
            chosen.append(self._choice(budget, candidate, kept(candidate.shape)))
        self._show_front(chosen, kept)
        return tuple(chosen)

    def _layer_choice(self) -> LayerChoice:
        if self.guide.name:
            return most_important
        return lambda count, layers: choose_layers(str(count), len(layers))  # as `shrink --layers` without importance

    def _choice(self, budget: Budget, candidate: Candidate, kept: float) -> Choice:
        original, shape = self.candidates.original, candidate.shape
        layers = str(shape.layers) if shape.layers != original.shape.layers else None
        note(f"{budget.flag}: {self.candidates.describe(candidate)}; it keeps {kept:.0%} of the importance")
        facts = {
            "budget": budget.flag,
            **shape._asdict(),
            "parameters": candidate.counts.parameters,
            "flops": candidate.counts.flops,
            "flops_share": candidate.counts.flops / original.counts.flops,
            "length": self.length,
            "importance_kept": kept,
            "shapes": len(self.candidates.all),
        }
        return Choice(budget, candidate, kept, widths_for(self.config, shape), layers, facts)

    def _show_front(self, chosen: Sequence[Choice], kept: Any) -> None:
        quantity = chosen[0].budget.quantity
        front = pareto_front(self.candidates.all, quantity, kept)
        marked = {choice.candidate: choice.budget.flag for choice in chosen}
        rows = thinned(front, tuple(marked), _ROWS)
        columns, cells = self._table(rows)
        for row, each in zip(cells, rows, strict=True):
            row.extend([f"{kept(each.shape):.1%}", marked.get(each, "")])
        what = f"{len(front)} of {len(self.candidates.all):,} shapes: none of fewer {quantity} keeps as much"
        table(f"Pareto front, {what}", [*columns, "importance kept", "chosen for"], cells)

    def _table(self, candidates: Sequence[Candidate]) -> tuple[list[str], list[list[str]]]:
        columns = ["layers", "hidden", "heads", "neurons", "parameters", f"MFLOPs at {self.length}", "of them"]
        flops = self.candidates.original.counts.flops
        rows = [
            [
                str(each.shape.layers),
                str(hidden_size(self.config, each.shape)),
                str(each.shape.heads),
                str(each.shape.ffn),
                f"{each.counts.parameters:,}",
                f"{each.counts.flops / 1e6:,.0f}",
                f"{each.counts.flops / flops:.1%}",
            ]
            for each in candidates
        ]
        return columns, rows


def open_search(
    options: Any, source: Checkpoint, architecture: str, config: PreTrainedConfig, changed: PreTrainedConfig
) -> BudgetSearch:
    """List the shapes, and check that the budgets are possible as far as it is known without weights.

    Args:
        options: `BudgetOptions` and `ImportanceOptions` with `field` and `seed`.
        source: that is cut.
        architecture: its class.
        config: the source's.
        changed: the same with the new vocabulary.

    Raises:
        UsageError: no shape fits a budget, no cut is needed, or an option is wrong.
        SqueezeError: there are no such calibration data.
    """
    length = _length(options, source, config)
    narrows = family_of(config).supports_narrowing and _scores_width(options.importance_name)
    shapes = shapes_of(changed, narrows=narrows)
    guide = plan_guide(options, source, changed, widths_for(changed, min(shapes)), "1")
    counter = ShapeCounter(changed, architecture, length)
    own = own_shape(config)
    original = Candidate(own, ShapeCounter(config, architecture, length).of(own))
    every = tuple(Candidate(shape, counter.count(shape)) for shape in shapes)

    def describe(candidate: Candidate) -> str:
        layers, heads, ffn = candidate.shape
        width = f"hidden size {hidden_size(changed, candidate.shape)}"
        share = candidate.counts.flops / original.counts.flops
        return (
            f"{layers} of {own.layers} layers, {heads} of {own.heads} heads ({width}) and {ffn} of {own.ffn} neurons, "
            f"has {candidate.counts.parameters:,} parameters and {share:.1%} of the operations"
        )

    search = BudgetSearch(changed, guide, budgets_of(options), Candidates(original, every, describe), options.length)
    for budget in search.budgets:
        search.candidates.fitting(budget)
    return search


def _length(options: Any, source: Checkpoint, config: PreTrainedConfig) -> int:
    """Return the length of sequences: the given one, or at most the model's longest input."""
    if options.is_given("length"):
        check_length(source.name, config, options.length)
    return min(int(options.length), longest_input(config))


def _scores_width(importance: str | None) -> bool:
    return importance is None or "neurons" in open_importance(importance).SCORES
