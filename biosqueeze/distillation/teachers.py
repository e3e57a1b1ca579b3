"""Who answers for the teacher: a model that runs beside the student, or answers that come with the batch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
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
from biosqueeze.models.heads import mlm_logits, output_of
from biosqueeze.models.hooks import HiddenStateHooks, States
from biosqueeze.models.inputs import Texts, model_inputs
from biosqueeze.models.layers import layers_by_depth
from biosqueeze.models.output_tensors import OutputTensors, tensors_of
from biosqueeze.models.row_kinds import RowKind
from biosqueeze.objectives import Layer, TopK
from biosqueeze.progress import note

# Logits of some of the rows: asked for in parts, so that those over a vocabulary never lie in memory all at once.
RowsOf = Callable[[slice], Tensor | TopK]
Batch = Mapping[str, Tensor]


@dataclass(frozen=True)
class Answer:
    """What a teacher says about one batch."""

    rows: RowsOf | None
    layers: Mapping[int, Layer] = field(default_factory=dict)  # by depth


class Teacher(Protocol):
    """Somebody to learn from."""

    def answer(self, batch: Batch) -> Answer:
        """What it says, without gradients."""


@dataclass(frozen=True)
class Question:
    """What is asked of teacher and student alike: which rows, and which layers."""

    kind: str  # "mlm" or "task"
    output_type: OutputType  # TOKENS for mlm
    logits: bool  # whether any loss reads the teacher's rows

    @property
    def tensors(self) -> OutputTensors:
        """Operations on the logits and labels of the output type."""
        return tensors_of(self.output_type)


def row_mask(question: Question, batch: Batch) -> Tensor:
    """Which positions are rows, bool (batch, length): the masked ones, or all that are real or were asked about."""
    if question.kind == "mlm":
        return batch[LABELS] >= 0
    return batch.get(TEACHER_POSITIONS, batch[ATTENTION_MASK]).bool()


@dataclass(frozen=True)
class ForwardOutput:
    """What one model said about a batch: the rows of its head, or (mlm) the hidden states that they are made of."""

    rows: Tensor  # (rows, classes); mlm: (rows, hidden), the last hidden states at the masked positions
    states: States


def look(model: PreTrainedModel, taps: HiddenStateHooks, question: Question, batch: Batch) -> ForwardOutput:
    """Run a model once."""
    inputs = model_inputs(model, batch)
    with taps.open() as states:
        if question.kind == "task":
            rows = question.tensors.rows(output_of(model(**inputs)), row_mask(question, batch))
            return ForwardOutput(rows, states)
        encoder: Any = model.base_model
        hidden = encoder(**inputs).last_hidden_state  # (batch, length, hidden)
    return ForwardOutput(hidden[row_mask(question, batch)], states)


def layers_of(states: States, batch: Batch) -> dict[int, Layer]:
    """Inner states as the losses read them: hidden (tokens, hidden), the others by text; see `objectives.Layer`."""
    if not states:
        return {}
    real, texts = batch["attention_mask"].bool(), Texts.of(batch)
    return {
        depth: Layer(**{part: state[real] if part == "hidden" else texts.rows(state) for part, state in parts.items()})
        for depth, parts in states.items()
    }


class LiveTeacher:
    """One frozen model, or several whose soft labels are averaged."""

    def __init__(
        self,
        models: Sequence[PreTrainedModel],
        question: Question,
        wanted: Mapping[int, frozenset[str]],
        *,
        weights: Sequence[float] = (),
        temperature: float = 1.0,
        sharded: bool = False,
    ) -> None:
        """Freeze the models and set the taps.

        Args:
            models: of one vocabulary; inner states are read from the first.
            question: what is asked.
            wanted: parts by depth, see `HiddenStateHooks`.
            weights: how much each model counts; alike if left out.
            temperature: at which the distributions are averaged.
            sharded: whether each process holds a part of the weights alone; all then have to ask at the same time.
        """
        self.models = list(models)
        self.question, self.temperature = question, temperature
        self._sharded, self._device = sharded, torch.device("meta")  # where nobody has asked yet
        total = sum(weights) or len(self.models)
        self.weights = [weight / total for weight in weights or [1.0] * len(self.models)]
        self.taps = [HiddenStateHooks(model, {} if number else wanted) for number, model in enumerate(self.models)]
        for model in self.models:
            model.train(mode=False)
            model.requires_grad_(requires_grad=False)

    @torch.no_grad()
    def answer(self, batch: Batch) -> Answer:
        """Run the models, on the device of the batch."""
        if self._device != batch["input_ids"].device:
            self._place(batch["input_ids"].device)
        looks = [look(model, taps, self.question, batch) for model, taps in zip(self.models, self.taps, strict=True)]
        layers = layers_of(looks[0].states, batch)
        return Answer(partial(self._rows, [one.rows for one in looks]) if self.question.logits else None, layers)

    def _place(self, device: torch.device) -> None:
        """Bring the models to where they are asked, at the first question: by then the processes are joined.

        Where the memory does not suffice for it, the next question tries again.
        """
        if self._sharded:
            _shard(self.models)
        for model in self.models:
            nn.Module.to(model, device)
        self._device = device

    @torch.no_grad()
    def _rows(self, seen: Sequence[Tensor], part: slice) -> Tensor:
        logits = [rows[part] for rows in seen]
        if self.question.kind == "mlm":
            logits = [mlm_logits(model, hidden) for model, hidden in zip(self.models, logits, strict=True)]
        if len(logits) == 1:
            return logits[0]
        floats = [one.float() for one in logits]
        return mean_logits(floats, self.weights, self.temperature, self.question.tensors.row_kind)


def _shard(models: Sequence[PreTrainedModel]) -> None:
    """Leave each process a part of every layer's weights (FSDP); a layer is put together while it runs, and only then.

    Embeddings and heads stay whole in each process: a head is asked in parts, and how many differs between processes.
    """
    whole = sum(model.num_parameters() for model in models)
    for model in models:
        for layer in dict.fromkeys(layers_by_depth(model)):
            fully_shard(layer, reshard_after_forward=True)
    held = sum(_local(parameter).numel() for model in models for parameter in model.parameters())
    note(f"of the teachers' {whole:,} parameters each process holds {held:,}")


def _local(parameter: Tensor) -> Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def mean_logits(logits: Sequence[Tensor], weights: Sequence[float], temperature: float, kind: RowKind) -> Tensor:
    """Logits whose distribution at the temperature is the weighted mean of several distributions: (rows, classes) each.

    The weights add up to 1. A score is averaged as the number that it is.
    """
    shares = torch.tensor(weights, device=logits[0].device).view(-1, 1, 1)
    stacked = torch.stack(list(logits)) / temperature  # (teachers, rows, classes)
    return kind.mean_logits(stacked, shares) * temperature


class NoTeacher:
    """Nobody: for losses that learn from the text alone, as in continued pretraining."""

    def answer(self, batch: Batch) -> Answer:
        """Nothing."""
        del batch
        return Answer(None)


class CachedTeacher:
    """Answers that came with the batch, joined row by row and token by token: see `data.collate`."""

    def __init__(self, question: Question) -> None:
        self.question = question

    def answer(self, batch: Batch) -> Answer:
        """What the batch brings along under `teacher.*`."""
        layers = {
            int(name.rpartition(".")[2]): Layer(hidden=tensor)
            for name, tensor in batch.items()
            if name.startswith(TEACHER_HIDDEN)
        }
        return Answer(self._rows(batch) if self.question.logits else None, layers)

    def _rows(self, batch: Batch) -> RowsOf | None:
        if TEACHER_LOGITS in batch:
            logits = batch[TEACHER_LOGITS]
            return lambda part: logits[part]
        if TEACHER_TOP_IDS not in batch:
            return None  # the losses read rows of the student alone
        ids, likely, rest = (batch[key] for key in (TEACHER_TOP_IDS, TEACHER_TOP_LOG_PROBABILITIES, TEACHER_REST))
        return lambda part: TopK(ids[part].long(), likely[part].float(), rest[part].float())
