"""Sources of teacher outputs: models that run beside the student, or outputs that were computed before the training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from biosqueeze.data.feature_keys import (
    ATTENTION_MASK,
    LABELS,
    TEACHER_HIDDEN,
    TEACHER_LOGITS,
    TEACHER_POSITIONS,
    TEACHER_REST,
    TEACHER_TOP_IDS,
    TEACHER_TOP_LOG_PROBABILITIES,
)
from biosqueeze.data.output_types import OutputType
from biosqueeze.models.fast_training.first_token import leave_out_others, reads_first_token
from biosqueeze.models.heads import main_output, mlm_logits
from biosqueeze.models.hooks import HiddenStateHooks, States
from biosqueeze.models.inputs import TextRows, model_inputs
from biosqueeze.models.int8_products import Int8Linear
from biosqueeze.models.output_tensors import OutputTensors, tensors_of
from biosqueeze.models.row_kinds import RowKind
from biosqueeze.objectives import LayerStates, TopK
from biosqueeze.progress import note
from biosqueeze.training.sharding import held_parameters, shard_layers

# Computes the logits of a slice of the rows, so that those over a vocabulary are never all in memory at once.
RowLogits = Callable[[slice], Tensor | TopK]
Batch = Mapping[str, Tensor]


@dataclass(frozen=True)
class TeacherOutputs:
    """The teacher's outputs on one batch: logits of the rows, and layer states by depth."""

    rows: RowLogits | None
    layers: Mapping[int, LayerStates] = field(default_factory=dict)  # by depth


class Teacher(Protocol):
    """A source of teacher outputs."""

    def outputs(self, batch: Batch) -> TeacherOutputs:
        """Return the teacher's outputs on a batch, without gradients."""


@dataclass(frozen=True)
class OutputSpec:
    """Which outputs of student and teacher are compared."""

    kind: str  # "mlm" or "task"
    output_type: OutputType  # TOKENS for mlm
    logits: bool  # whether any loss reads the teacher's logits

    @property
    def tensors(self) -> OutputTensors:
        """Operations on the logits and labels of the output type."""
        return tensors_of(self.output_type)


def row_mask(spec: OutputSpec, batch: Batch) -> Tensor:
    """Return which positions are rows, bool (batch, length): masked (mlm), TEACHER_POSITIONS, or real tokens."""
    if spec.kind == "mlm":
        return batch[LABELS] >= 0
    return batch.get(TEACHER_POSITIONS, batch[ATTENTION_MASK]).bool()


@dataclass(frozen=True)
class ForwardOutput:
    """The output of one model on a batch: the rows of its head, or (mlm) the hidden states that the head reads."""

    rows: Tensor  # (rows, classes); mlm: (rows, hidden), the last hidden states at the masked positions
    states: States


def run_model(model: PreTrainedModel, hooks: HiddenStateHooks, spec: OutputSpec, batch: Batch) -> ForwardOutput:
    """Run one forward pass and collect rows and layer states."""
    inputs = model_inputs(model, batch)
    with hooks.capture() as states:
        if spec.kind == "task":
            rows = spec.tensors.rows(main_output(model(**inputs)), row_mask(spec, batch))
            return ForwardOutput(rows, states)
        encoder: Any = model.base_model
        hidden = encoder(**inputs).last_hidden_state  # (batch, length, hidden)
    return ForwardOutput(hidden[row_mask(spec, batch)], states)


def layers_of(states: States, batch: Batch) -> dict[int, LayerStates]:
    """Arrange recorded states as the losses read them: hidden states (tokens, hidden), the other parts by text."""
    if not states:
        return {}
    real, texts = batch["attention_mask"].bool(), TextRows.of(batch)

    def arranged(part: str, state: Tensor) -> Tensor:
        if part == "hidden":
            return state[real]
        return texts.squares(state) if part == "bias" else texts.rows(state)

    return {
        depth: LayerStates(**{part: arranged(part, state) for part, state in parts.items()})
        for depth, parts in states.items()
    }


class LiveTeacher:
    """One frozen model, or several whose soft labels are averaged, run on every batch."""

    def __init__(
        self,
        models: Sequence[PreTrainedModel],
        spec: OutputSpec,
        parts_by_depth: Mapping[int, frozenset[str]],
        *,
        weights: Sequence[float] = (),
        temperature: float = 1.0,
    ) -> None:
        """Freeze the models and attach the hooks.

        Args:
            models: of one vocabulary; layer states are recorded from the first.
            spec: which outputs to return.
            parts_by_depth: parts of the first model's layers to record, see `HiddenStateHooks`.
            weights: weight of each model in the mean; equal if left out.
            temperature: at which the distributions are averaged.
        """
        self.models = list(models)
        self.spec, self.temperature = spec, temperature
        self._device = torch.device("meta")  # until the first batch
        total = sum(weights) or len(self.models)
        self.weights = [weight / total for weight in weights or [1.0] * len(self.models)]
        self.hooks = [
            HiddenStateHooks(model, {} if number else parts_by_depth) for number, model in enumerate(self.models)
        ]
        for model, hooks in zip(self.models, self.hooks, strict=True):
            model.train(mode=False)
            model.requires_grad_(requires_grad=False)
            if reads_first_token(model) and not hooks.captures_last_states:
                leave_out_others(model)

    @property
    def computes_in_int8(self) -> bool:
        """Whether matrix products of a model are in int8."""
        return any(isinstance(module, Int8Linear) for model in self.models for module in model.modules())

    @torch.no_grad()
    def outputs(self, batch: Batch) -> TeacherOutputs:
        """Run the models on the device of the batch."""
        if self._device != batch["input_ids"].device:
            self._place(batch["input_ids"].device)
        forward = [
            run_model(model, hooks, self.spec, batch) for model, hooks in zip(self.models, self.hooks, strict=True)
        ]
        layers = layers_of(forward[0].states, batch)
        rows = partial(self._logits, [output.rows for output in forward]) if self.spec.logits else None
        return TeacherOutputs(rows, layers)

    def _place(self, device: torch.device) -> None:
        """Move the models to the device of the first batch: by then the processes have joined.

        After an out-of-memory error the next batch tries again.
        """
        for model in self.models:
            nn.Module.to(model, device)
        self._device = device

    @torch.no_grad()
    def _logits(self, rows: Sequence[Tensor], part: slice) -> Tensor:
        """Compute the logits of a slice of the rows, averaged over the models."""
        logits = [model_rows[part] for model_rows in rows]
        if self.spec.kind == "mlm":
            logits = [mlm_logits(model, hidden) for model, hidden in zip(self.models, logits, strict=True)]
        if len(logits) == 1:
            return logits[0]
        return mean_logits(
            [tensor.float() for tensor in logits], self.weights, self.temperature, self.spec.tensors.row_kind
        )


class ShardedTeacher(LiveTeacher):
    """Teachers of which each process holds a part of the weights; all processes run every batch together."""

    def _place(self, device: torch.device) -> None:
        # Embeddings and heads stay whole in each process: a head runs in slices, whose number differs between them.
        shard_layers(self.models)
        note(f"teachers sharded: {held_parameters(self.models)}")
        super()._place(device)


def mean_logits(logits: Sequence[Tensor], weights: Sequence[float], temperature: float, kind: RowKind) -> Tensor:
    """Return logits whose distribution at the temperature is the weighted mean of several: (rows, classes) each.

    The weights must sum to 1. Scores are averaged as numbers.
    """
    shares = torch.tensor(weights, device=logits[0].device).view(-1, 1, 1)
    stacked = torch.stack(list(logits)) / temperature  # (teachers, rows, classes)
    return kind.mean_logits(stacked, shares) * temperature


class NoTeacher:
    """No outputs: for losses that read only the student and the labels, as in continued pretraining."""

    def outputs(self, batch: Batch) -> TeacherOutputs:
        """Return empty outputs."""
        del batch
        return TeacherOutputs(None)


class CachedTeacher:
    """Precomputed outputs in the batch under `teacher.*`, concatenated by row and token: see `data.collate`."""

    def __init__(self, spec: OutputSpec) -> None:
        self.spec = spec

    def outputs(self, batch: Batch) -> TeacherOutputs:
        """Return the batch's `teacher.*` tensors."""
        layers = {
            int(name.rpartition(".")[2]): LayerStates(hidden=tensor)
            for name, tensor in batch.items()
            if name.startswith(TEACHER_HIDDEN)
        }
        return TeacherOutputs(self._logits(batch) if self.spec.logits else None, layers)

    def _logits(self, batch: Batch) -> RowLogits | None:
        if TEACHER_LOGITS in batch:
            logits = batch[TEACHER_LOGITS]
            return lambda part: logits[part]
        if TEACHER_TOP_IDS not in batch:
            return None  # the losses on rows read the student's alone
        ids, top, rest = (batch[key] for key in (TEACHER_TOP_IDS, TEACHER_TOP_LOG_PROBABILITIES, TEACHER_REST))
        return lambda part: TopK(ids[part].long(), top[part].float(), rest[part].float())
