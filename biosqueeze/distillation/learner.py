"""Train a student on the outputs of its teachers: compute every loss of the configuration on one batch."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from biosqueeze.distillation.losses.config import LossConfig
from biosqueeze.distillation.teachers.sources import Teacher, TeacherOutputs, layers_of, row_mask, run_model
from biosqueeze.models.custom_heads.encoder import HeadedEncoder
from biosqueeze.models.fast_training.first_token import reads_first_token
from biosqueeze.models.heads import mlm_logits, vocabulary_parameters
from biosqueeze.models.hooks import HiddenStateHooks
from biosqueeze.models.inputs import TextRows, within_window
from biosqueeze.objectives import LayerPair, LayerStates, LogitRows, TopK, labelled
from biosqueeze.training.chunked_loss import ChunkedTerms, chunk_rows, sum_in_chunks
from biosqueeze.training.learner import Learner


class Distiller(Learner):
    """A student and its losses; a trained projection bridges different widths (compact-transformers, W_p)."""

    def __init__(
        self,
        student: Any,
        teacher: Teacher,
        loss_config: LossConfig,
        *,
        teacher_width: int,
        seed: int = 0,
    ) -> None:
        """Attach the hooks, and initialize the projections with the seed."""
        super().__init__()
        self.model, self.loss_config, self.weights = student, loss_config, loss_config.weights
        # In a tuple, so that the teacher is no submodule: it is neither trained nor saved nor wrapped.
        self._teacher = (teacher,)
        self.losses = loss_config.losses
        self.hooks = HiddenStateHooks(student, loss_config.student_parts)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.projections = _projections(loss_config, student.config.hidden_size, teacher_width)

    @property
    def reads_first_token(self) -> bool:
        """Whether the student is a sequence classifier with BERT's layers, and no loss reads its last hidden states."""
        return reads_first_token(self.model) and not self.hooks.captures_last_states

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, int]:
        """Return how many units each term is a mean over."""
        batch = self._as_texts(batch)
        units = {name: loss.UNIT for name, loss in self.losses.items()}
        counted = {unit: self._count(unit, batch) for unit in set(units.values())}
        return {name: counted[unit] for name, unit in units.items()}

    def _as_texts(self, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the batch as the encoders read it: separately encoded texts are separate rows."""
        return self.model.as_texts(batch) if isinstance(self.model, HeadedEncoder) else batch

    def _count(self, unit: str, batch: Mapping[str, Tensor]) -> int:
        match unit:
            case "tokens":
                return int(batch["attention_mask"].sum())
            case "pairs":
                return TextRows.of(batch).pairs
            case "labelled":
                return int(labelled(self._labels(batch)).sum())
        return len(self._labels(batch))

    def forward(self, **batch: Tensor) -> dict[str, Tensor]:
        """Compute each loss, unweighted: the mean over its units. Scalars."""
        texts = self._as_texts(batch)
        teacher = self._teacher[0].outputs(texts)
        student = run_model(self.model, self.hooks, self.loss_config.output_spec, texts)
        terms = self._row_losses(student.rows, teacher, texts)
        terms |= self._layer_losses(layers_of(student.states, texts), teacher, texts)
        counts = self.counts(batch)
        return {name: terms[name] / max(1, counts[name]) for name in self.weights}

    def _row_losses(self, rows: Tensor, teacher: TeacherOutputs, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Sum the losses that read rows; `rows` as in `teachers.sources.ForwardOutput`."""
        names = [name for name, loss in self.losses.items() if loss.READS == "rows"]
        if not names:
            return {}
        labels = self._labels(batch)
        if self.loss_config.output_spec.kind == "task":
            sums = self._sums(names, teacher, labels, rows, slice(None))
        else:
            sums_of_hidden = partial(self._sums_of_hidden, names, teacher, labels)
            size = chunk_rows(self.model.config.vocab_size)
            terms = ChunkedTerms(sums_of_hidden, [self.weights[name] for name in names], size)
            sums = sum_in_chunks(terms, rows, vocabulary_parameters(self.model))
        return dict(zip(names, sums, strict=True))

    def _sums_of_hidden(
        self, names: list[str], teacher: TeacherOutputs, labels: Tensor, hidden: Tensor, part: slice
    ) -> Tensor:
        return self._sums(names, teacher, labels[part], mlm_logits(self.model, hidden), part)

    def _sums(self, names: list[str], teacher: TeacherOutputs, labels: Tensor, student: Tensor, part: slice) -> Tensor:
        """Sum each of these losses over a slice of the rows: (losses,)."""
        teacher_rows: Tensor | TopK | None = teacher.rows(part) if teacher.rows else None
        config = self.loss_config
        rows = LogitRows(student, teacher_rows, labels, config.temperature, config.output_spec.tensors.row_kind)
        return torch.stack([self.losses[name].loss(rows) for name in names])

    def _layer_losses(
        self, student: Mapping[int, LayerStates], teacher: TeacherOutputs, batch: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Sum the losses that read layers, over their weighted pairs of the layer map."""
        layered = {name: loss for name, loss in self.losses.items() if loss.READS != "rows"}
        if not layered:
            return {}
        allowed = TextRows.of(batch).allowed

        def weighted(loss: ModuleType, student_depth: int, teacher_depth: int) -> Tensor:
            layer = self._projected(student[student_depth], student_depth)
            window = self.loss_config.windows.get((student_depth, teacher_depth))
            seen = allowed if window is None else allowed & within_window(allowed.shape[2], window, allowed.device)
            states = self._compared(loss, teacher.layers[teacher_depth], student_depth)
            pair = LayerPair(layer, states, seen, self.loss_config.relation_heads)
            value: Tensor = loss.loss(pair)
            return self.loss_config.weight_of((student_depth, teacher_depth)) * value

        return {
            name: torch.stack([weighted(loss, *depths) for depths in self.loss_config.pairs_of(loss)]).sum()
            for name, loss in layered.items()
        }

    def _projected(self, layer: LayerStates, depth: int) -> LayerStates:
        """Project the hidden states of the student's layer at a depth to the teacher's width."""
        name = "shared" if self.loss_config.projection == "shared" else str(depth)
        if layer.hidden is None or name not in self.projections:
            return layer
        return replace(layer, hidden=self.projections[name](layer.hidden))

    def _compared(self, loss: ModuleType, teacher: LayerStates, student_depth: int) -> LayerStates:
        """Return the teacher's states; for a loss that compares head by head, of the heads that the student kept."""
        heads = self.loss_config.teacher_heads
        return teacher.of_heads(heads[student_depth - 1]) if heads and getattr(loss, "SAME_HEADS", False) else teacher

    def _labels(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the gold label of each row: see `objectives.LogitRows`."""
        spec = self.loss_config.output_spec
        return spec.tensors.row_labels(batch, row_mask(spec, batch))


def _projections(loss_config: LossConfig, student_width: int, teacher_width: int) -> nn.ModuleDict:
    """Create the linear layers to the teacher's width, one for all depths or one for each, where any is needed."""
    depths = [depth for depth, parts in loss_config.student_parts.items() if "hidden" in parts]
    if student_width == teacher_width or not depths:
        return nn.ModuleDict()
    names = ["shared"] if loss_config.projection == "shared" else [str(depth) for depth in depths]
    return nn.ModuleDict({name: nn.Linear(student_width, teacher_width) for name in names})
