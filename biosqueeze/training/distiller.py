"""A student that learns from a teacher: every loss of the recipe on one batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from biosqueeze import registry
from biosqueeze.models.heads import mlm_logits
from biosqueeze.models.inputs import Texts
from biosqueeze.models.layer_maps import LayerMap
from biosqueeze.models.taps import Taps
from biosqueeze.objectives import Layer, Pair, Rows, TopK, labelled
from biosqueeze.training.chunks import Work, summed
from biosqueeze.training.learner import Learner
from biosqueeze.training.mixes import Projection
from biosqueeze.training.teachers import Answer, Question, Teacher, layers_of, look, row_mask

_PARTS = {
    "hidden": ("hidden",),
    "attention": ("query", "key"),
    "relations": ("query", "key", "value"),
}
EMBEDDINGS = ((0, 0),)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to distil."""

    weights: Mapping[str, float]  # by loss
    question: Question
    temperature: float = 1.0
    layers: LayerMap = ()  # pairs (student layer, teacher layer), counted from 1
    layer_weights: tuple[float, ...] = ()  # one for each pair; 1 if left out
    projection: Projection = "shared"
    relation_heads: int = 0  # see objectives.Pair
    dropout: float | None = None  # the student's while it trains; None is its config's

    @property
    def losses(self) -> dict[str, ModuleType]:
        """The modules of the losses."""
        return {name: registry.load("objectives", name) for name in self.weights}

    def pairs_of(self, loss: ModuleType) -> LayerMap:
        """The pairs of depths on which a loss acts; none where it reads rows."""
        if loss.READS == "rows":
            return ()
        return {"all": self.layers, "last": (max(self.layers),), "embeddings": EMBEDDINGS}[loss.LAYERS]

    def wanted(self, side: int) -> dict[int, frozenset[str]]:
        """Parts by depth that the losses read of the student (side 0) or the teacher (side 1)."""
        found: dict[int, set[str]] = {}
        for loss in self.losses.values():
            for pair in self.pairs_of(loss):
                found.setdefault(pair[side], set()).update(_PARTS[loss.READS])
        return {depth: frozenset(parts) for depth, parts in found.items()}

    @property
    def needs_teacher(self) -> bool:
        """Whether any loss reads what the teacher says or has inside."""
        return self.question.logits or bool(self.wanted(1))

    @property
    def teaches_head(self) -> bool:
        """Whether any loss reads what the student's head says."""
        return any(loss.READS == "rows" for loss in self.losses.values())

    def weight_of(self, pair: tuple[int, int]) -> float:
        """How much a pair of layers counts."""
        return self.layer_weights[self.layers.index(pair)] if self.layer_weights and pair in self.layers else 1.0


def _set_dropout(model: nn.Module, share: float) -> None:
    """Set all dropout while training; config.json, and with it later fine-tuning, keeps its own."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = share


class Distiller(Learner):
    """A student and what it learns; a learned projection bridges different widths (compact-transformers, W_p)."""

    def __init__(
        self, student: PreTrainedModel, teacher: Teacher, recipe: Recipe, *, teacher_width: int, seed: int = 0
    ) -> None:
        """Set the taps, and draw the projections with the seed."""
        super().__init__()
        self.model, self.recipe, self.weights = student, recipe, recipe.weights
        # In a tuple, so that the teacher is no submodule: it is neither trained nor saved nor wrapped.
        self._teacher = (teacher,)
        if recipe.dropout is not None:
            _set_dropout(student, recipe.dropout)
        self.losses = recipe.losses
        self.taps = Taps(student, recipe.wanted(0))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.projections = _projections(recipe, student.config.hidden_size, teacher_width)

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, int]:
        """How many units each term is a mean over."""
        units = {name: loss.UNIT for name, loss in self.losses.items()}
        counted = {unit: self._count(unit, batch) for unit in set(units.values())}
        return {name: counted[unit] for name, unit in units.items()}

    def _count(self, unit: str, batch: Mapping[str, Tensor]) -> int:
        match unit:
            case "tokens":
                return int(batch["attention_mask"].sum())
            case "pairs":
                return Texts.of(batch).pairs
            case "labelled":
                return int(labelled(self._labels(batch)).sum())
        return len(self._labels(batch))

    def forward(self, **batch: Tensor) -> dict[str, Tensor]:
        """Each loss of the recipe, unweighted: the mean over its units. Scalars."""
        answer = self._teacher[0].answer(batch)
        seen = look(self.model, self.taps, self.recipe.question, batch)
        terms = self._of_rows(seen.rows, answer, batch) | self._of_layers(layers_of(seen.states, batch), answer, batch)
        counts = self.counts(batch)
        return {name: terms[name] / max(1, counts[name]) for name in self.weights}

    def _of_rows(self, rows: Tensor, answer: Answer, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The sums of the losses that read rows: see `teachers.Look`."""
        names = [name for name, loss in self.losses.items() if loss.READS == "rows"]
        if not names:
            return {}
        labels = self._labels(batch)
        if self.recipe.question.kind == "task":
            sums = self._sums(names, answer, labels, rows, slice(None))
        else:
            work = Work(partial(self._of_hidden, names, answer, labels), [self.weights[name] for name in names])
            sums = summed(work, rows, _head_parameters(self.model))
        return dict(zip(names, sums, strict=True))

    def _of_hidden(self, names: list[str], answer: Answer, labels: Tensor, hidden: Tensor, part: slice) -> Tensor:
        return self._sums(names, answer, labels[part], mlm_logits(self.model, hidden), part)

    def _sums(self, names: list[str], answer: Answer, labels: Tensor, student: Tensor, part: slice) -> Tensor:
        """The sum of each of these losses over some rows: (losses,)."""
        teacher: Tensor | TopK | None = answer.rows(part) if answer.rows else None
        recipe = self.recipe
        rows = Rows(student, teacher, labels, recipe.temperature, recipe.question.of_rows)
        return torch.stack([self.losses[name].loss(rows) for name in names])

    def _of_layers(
        self, student: Mapping[int, Layer], answer: Answer, batch: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """The sums of the losses that read layers, over their pairs of the layer map."""
        layered = {name: loss for name, loss in self.losses.items() if loss.READS != "rows"}
        if not layered:
            return {}
        allowed = Texts.of(batch).allowed

        def weighed(loss: ModuleType, mine: int, its: int) -> Tensor:
            layer = self._widened(student[mine], mine)
            pair = Pair(layer, answer.layers[its], allowed, self.recipe.relation_heads)
            value: Tensor = loss.loss(pair)
            return self.recipe.weight_of((mine, its)) * value

        return {
            name: torch.stack([weighed(loss, *pair) for pair in self.recipe.pairs_of(loss)]).sum()
            for name, loss in layered.items()
        }

    def _widened(self, layer: Layer, depth: int) -> Layer:
        """The student's layer at a depth, with hidden states of the teacher's width."""
        name = "shared" if self.recipe.projection == "shared" else str(depth)
        if layer.hidden is None or name not in self.projections:
            return layer
        return Layer(self.projections[name](layer.hidden), layer.query, layer.key, layer.value)

    def _labels(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The truth of each row: see `objectives.Rows`."""
        question = self.recipe.question
        if question.problem == "tokens":
            return batch["labels"][row_mask(question, batch)]
        if question.problem == "span":
            return torch.stack([batch["starts"], batch["ends"]], dim=1).flatten()  # (2 batch,)
        return batch["labels" if question.problem == "single" else "targets"]


def _projections(recipe: Recipe, narrow: int, wide: int) -> nn.ModuleDict:
    """A linear layer to the teacher's width, for all depths or one for each, where any is needed."""
    depths = [depth for depth, parts in recipe.wanted(0).items() if "hidden" in parts]
    if narrow == wide or not depths:
        return nn.ModuleDict()
    names = ["shared"] if recipe.projection == "shared" else [str(depth) for depth in depths]
    return nn.ModuleDict({name: nn.Linear(narrow, wide) for name in names})


def _head_parameters(model: PreTrainedModel) -> list[nn.Parameter]:
    """What the vocabulary's logits are made with: the head's own parameters and the tied embedding."""
    trunk = {id(parameter) for parameter in model.base_model.parameters()}
    own = [parameter for parameter in model.parameters() if id(parameter) not in trunk]
    output: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    tied = [output.weight] if output is not None and id(output.weight) in trunk else []
    return [parameter for parameter in (*own, *tied) if parameter.requires_grad]
