"""A student that learns from a teacher: every loss of the recipe on one batch."""

from collections.abc import Mapping
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from biosqueeze.distillation.chunked_loss import Work, summed
from biosqueeze.distillation.loss_config import LossConfig
from biosqueeze.distillation.teachers import Answer, Teacher, layers_of, look, row_mask
from biosqueeze.models.heads import mlm_logits
from biosqueeze.models.hooks import HiddenStateHooks
from biosqueeze.models.inputs import Texts
from biosqueeze.objectives import Layer, Pair, Rows, TopK, labelled
from biosqueeze.training.learner import Learner


def _set_dropout(model: nn.Module, share: float) -> None:
    """Set all dropout while training; config.json, and with it later fine-tuning, keeps its own."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = share


class Distiller(Learner):
    """A student and what it learns; a learned projection bridges different widths (compact-transformers, W_p)."""

    def __init__(
        self, student: PreTrainedModel, teacher: Teacher, recipe: LossConfig, *, teacher_width: int, seed: int = 0
    ) -> None:
        """Set the taps, and draw the projections with the seed."""
        super().__init__()
        self.model, self.recipe, self.weights = student, recipe, recipe.weights
        # In a tuple, so that the teacher is no submodule: it is neither trained nor saved nor wrapped.
        self._teacher = (teacher,)
        if recipe.dropout is not None:
            _set_dropout(student, recipe.dropout)
        self.losses = recipe.losses
        self.taps = HiddenStateHooks(student, recipe.wanted(0))
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
        """The sums of the losses that read rows: see `teachers.ForwardOutput`."""
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
        rows = Rows(student, teacher, labels, recipe.temperature, recipe.question.tensors.row_kind)
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
        return question.tensors.row_labels(batch, row_mask(question, batch))


def _projections(recipe: LossConfig, narrow: int, wide: int) -> nn.ModuleDict:
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
