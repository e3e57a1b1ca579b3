"""Choose the shape of a cut by a budget, from a checkpoint's config and, once they are computed, its importances."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedConfig

from biosqueeze.budgets.budget import Budget, budgets_of
from biosqueeze.budgets.choice import Candidate, Candidates, best, largest, pareto_front, thinned
from biosqueeze.budgets.counts import ShapeCounter
from biosqueeze.budgets.kept import KeptImportance, LayerChoice, most_important
from biosqueeze.budgets.latency import LatencyTable, measured_shapes
from biosqueeze.budgets.shapes import Shape, hidden_size, own_shape, shapes_of, widths_for
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.importance import scores_width, width_importances
from biosqueeze.importance.guide import Guide, plan_guide
from biosqueeze.models.cuts.depth import parse_layers
from biosqueeze.models.cuts.unit_scores import UnitScores
from biosqueeze.models.cuts.width import Widths
from biosqueeze.models.families import check_length, family_of, longest_input
from biosqueeze.models.loading.detection import detect_head
from biosqueeze.models.loading.load import load_config
from biosqueeze.progress import counted, note, table
from biosqueeze.vocabularies.change import VocabularyChange, plan_vocabulary

if TYPE_CHECKING:
    from biosqueeze.budgets.timing import TimingRequest

_ROWS = 12
"""Of the printed tables, beside the chosen shapes."""
_KEYS = len(Shape._fields)
"""Columns of the printed tables that say what a row is about: one size alone is that of many shapes."""


@dataclass(frozen=True)
class Choice:
    """The shape that was chosen for a budget."""

    budget: Budget
    candidate: Candidate
    widths: Widths
    layers: str | None
    """How many, in the form of --layers; None where all are kept."""
    facts: dict[str, Any]
    """For the manifest: the choice, and some of the Pareto front."""


@dataclass(frozen=True)
class BudgetSearch:
    """The shapes of one checkpoint, and the budgets that one of them is to fit."""

    config: PreTrainedConfig
    """With the new vocabulary, where there is one."""
    vocabulary: VocabularyChange | None
    """None where it stays."""
    guide: Guide
    budgets: tuple[Budget, ...]
    candidates: Candidates
    length: int
    timing: "TimingRequest | None"
    """Of a budget of time."""

    def timed(self) -> "BudgetSearch":
        """Return the search with predicted times; small models are measured for them, unless they were before.

        Raises:
            UsageError: no shape is fast enough.
            SqueezeError: the models cannot be measured.
        """
        return self._with(self.timing.measure()) if self.timing else self

    def plan(self) -> tuple[str, ...]:
        """Print the largest shapes that fit, as far as they are known without weights; return the steps of the plan."""
        known = self.timing.cached() if self.timing else None
        if self.timing and known is None:
            flags = ", ".join(budget.flag for budget in self.budgets)
            unknown = f"{flags}: cut to the shape that fits and keeps the most importance; the times decide what fits"
            return (*self.guide.steps, f"measure {self.timing.summary}", unknown)
        search = self._with(known) if known else self
        return (*self.guide.steps, *(search._show_largest(budget) for budget in search.budgets))

    def _with(self, latencies: LatencyTable) -> "BudgetSearch":
        search = replace(self, candidates=self.candidates.timed(latencies), timing=None)
        for budget in self.budgets:
            search.candidates.fitting(budget)
        return search

    def _show_largest(self, budget: Budget) -> str:
        fitting = self.candidates.fitting(budget)
        rows = largest(fitting)
        shown = thinned(rows, (), _ROWS)
        which = "the largest shape that fits" if len(rows) == 1 else f"the largest shapes that fit{_part(shown, rows)}"
        table(f"{budget.flag}: {which}", *self._table(shown), keys=_KEYS)
        if len(fitting) == 1:
            return f"{budget.flag}: cut to the only shape that fits"
        if len(rows) == 1:
            return f"{budget.flag}: cut to the largest of {len(fitting):,} shapes that fit"
        return (
            f"{budget.flag}: of {len(fitting):,} shapes that fit, cut to the one that keeps the most importance, one "
            f"of the {len(rows):,} largest; which, the weights decide"
        )

    def choose(self, scores: UnitScores) -> tuple[Choice, ...]:
        """Choose a shape for every budget, and print the Pareto front.

        Args:
            scores: importances of the original's units.
        """
        own, same_heads = own_shape(self.config), bool(family_of(self.config).shared_bias)
        kept = functools.cache(KeptImportance(scores, own, self._layer_choice(), same_heads=same_heads).of)
        found = [best(self.candidates.fitting(budget), budget.quantity, kept) for budget in self.budgets]
        front = pareto_front(self.candidates.all, self.budgets[0].quantity, kept)
        rows = thinned(front, found, _ROWS)
        listed = [self._facts(each, kept(each.shape)) for each in rows]
        chosen = tuple(
            self._choice(budget, each, {**self._facts(each, kept(each.shape)), "front": listed})
            for budget, each in zip(self.budgets, found, strict=True)
        )
        self._show_front(front, rows, chosen)
        return chosen

    def _layer_choice(self) -> LayerChoice:
        if self.guide.name and not self.guide.spreads_layers:
            return most_important
        return lambda count, layers: parse_layers(str(count), len(layers))  # as `shrink --layers` without importance

    def _choice(self, budget: Budget, candidate: Candidate, facts: dict[str, Any]) -> Choice:
        shape, kept = candidate.shape, facts["importance_kept"]
        layers = str(shape.layers) if shape.layers != self.candidates.original.shape.layers else None
        what = self.candidates.describe(candidate)
        note(f"{budget.flag}: {what}; keeps {kept:.0%} of the importance{self._of(layers)}")
        shared = {"budget": budget.flag, "length": self.length, "shapes": len(self.candidates.all)}
        return Choice(budget, candidate, widths_for(self.config, shape), layers, shared | facts)

    def _of(self, layers: str | None) -> str:
        """Say of which layers the importance is, where others may be kept."""
        if layers is None or not self.guide.tries_layers:
            return ""
        return f" with the {layers} most important layers; which are kept, the loss after repair decides"

    def _facts(self, candidate: Candidate, kept: float) -> dict[str, Any]:
        facts = {
            **candidate.shape._asdict(),
            "hidden": candidate.hidden,
            "parameters": candidate.counts.parameters,
            "flops": candidate.counts.flops,
            "flops_share": candidate.counts.flops / self.candidates.original.counts.flops,
            "importance_kept": kept,
        }
        if candidate.milliseconds is None:
            return facts
        return facts | {"milliseconds": candidate.milliseconds, "speed_up": self.candidates.speed_up(candidate)}

    def _show_front(self, front: Sequence[Candidate], rows: Sequence[Candidate], chosen: Sequence[Choice]) -> None:
        marks: dict[Candidate, list[str]] = {}
        for choice in chosen:
            marks.setdefault(choice.candidate, []).append(choice.budget.flag)
        columns, cells = self._table(rows)
        columns.insert(_KEYS, "importance kept")
        for cell, each, facts in zip(cells, rows, chosen[0].facts["front"], strict=True):
            cell.insert(_KEYS, f"{facts['importance_kept']:.1%}")
            cell.append(" ".join(marks.get(each, ())))
        quantity, total = chosen[0].budget.quantity, counted(len(self.candidates.all), "shape")
        what = f"{len(front):,} of {total}: none of fewer {quantity} keeps as much{_part(rows, front)}"
        table(f"Pareto front, {what}", [*columns, "chosen for"], cells, keys=_KEYS)

    def _table(self, candidates: Sequence[Candidate]) -> tuple[list[str], list[list[str]]]:
        columns = ["layers", "heads", "neurons", "hidden", "parameters", f"MFLOPs at {self.length}", "of all MFLOPs"]
        flops = self.candidates.original.counts.flops
        is_timed = self.candidates.original.milliseconds is not None
        rows = []
        for each in candidates:
            shape, counts = each.shape, each.counts
            row = [*map(str, (*shape, each.hidden)), f"{counts.parameters:,}"]
            row += [f"{counts.flops / 1e6:,.0f}", f"{counts.flops / flops:.1%}"]
            if is_timed:
                row += [f"{each.milliseconds:.3g}", f"{self.candidates.speed_up(each):.2f}x"]
            rows.append(row)
        return [*columns, *(["ms predicted", "speed-up"] if is_timed else [])], rows


def open_search(options: Any, source: Checkpoint, config: PreTrainedConfig | None = None) -> BudgetSearch:
    """List the shapes, and check that the budgets are possible as far as it is known without weights and times.

    What does not depend on a new vocabulary is checked before its text is read, which may take minutes.

    Args:
        options: `BudgetOptions`, `ImportanceOptions` and `VocabularyOptions` with `seed`.
        source: that is cut.
        config: the source's, where its weights were read; None for that in config.json.

    Raises:
        UsageError: no shape fits a budget, no cut is needed, or an option is wrong.
        SqueezeError: there are no such calibration data, a backend is not installed, or the vocabulary cannot be
            changed.
    """
    config = load_config(source) if config is None else config
    architecture = family_of(config).architecture(detect_head(source, config))
    length, budgets = _length(options, source, config), budgets_of(options)
    is_timed = budgets[0].quantity == "milliseconds"
    if is_timed:
        from biosqueeze.budgets.timing import check_backend  # its imports take seconds

        check_backend(options.backend)
    narrows = family_of(config).supports_narrowing
    if narrows and options.importance_name and not scores_width(options.importance_name):
        narrows = False
        note(
            f"--importance {options.importance_name} scores layers alone, so the budget cuts no heads and neurons; "
            f"--importance {width_importances()} scores them too"
        )
    shapes = shapes_of(config, narrows=narrows)
    guide = plan_guide(options, source, config, widths_for(config, min(shapes)), "1")
    vocabulary = plan_vocabulary(source, options, config)
    changed = vocabulary.new_config(config) if vocabulary else config
    counter, own = ShapeCounter(changed, architecture, length), own_shape(config)
    original = ShapeCounter(config, architecture, length).of(own)
    every = tuple(Candidate(shape, hidden_size(changed, shape), counter.count(shape)) for shape in shapes)
    projects = bool(family_of(config).embedding_projection)
    candidates = Candidates(Candidate(own, hidden_size(config, own), original), every, projects)
    timing = _timing(options, (config, changed), architecture, shapes, length) if is_timed else None
    if not timing:
        candidates.fitting(budgets[0])
    return BudgetSearch(changed, vocabulary, guide, budgets, candidates, length, timing)


def _part(shown: Sequence[Candidate], all_of_them: Sequence[Candidate]) -> str:
    """Return how many rows of a table are shown, if not all are."""
    return "" if len(shown) == len(all_of_them) else f"; {len(shown)} of {len(all_of_them):,} are shown"


def _timing(
    options: Any,
    configs: tuple[PreTrainedConfig, PreTrainedConfig],
    architecture: str,
    shapes: Sequence[Shape],
    length: int,
) -> "TimingRequest":
    from biosqueeze.backends import default_threads
    from biosqueeze.budgets.timing import TimingRequest

    return TimingRequest(
        config=configs[1],
        original=configs[0],
        architecture=architecture,
        shapes=measured_shapes(shapes),
        spec=options.backend,
        batch=options.batch,
        length=length,
        threads=options.threads or default_threads(),
    )


def _length(options: Any, source: Checkpoint, config: PreTrainedConfig) -> int:
    """Return the length of sequences: the given one, or at most the model's longest input."""
    if options.is_given("length"):
        check_length(source.name, config, options.length)
    return min(int(options.length), longest_input(config))
