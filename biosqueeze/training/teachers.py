"""Who answers for the teacher: a model that runs beside the student, or answers that come with the batch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from biosqueeze.models.heads import mlm_logits, output_of
from biosqueeze.models.inputs import model_inputs
from biosqueeze.models.taps import States, Taps
from biosqueeze.objectives import Layer, Problem, TopK

# Logits of some of the rows: asked for in parts, so that those over a vocabulary never lie in memory all at once.
RowsOf = Callable[[slice], Tensor | TopK]
Batch = Mapping[str, Tensor]

# A span's start and end are classes of the positions; this is what those in the padding get.
IMPOSSIBLE = -30_000.0


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
    problem: str  # "tokens", "single", "multi", "score" or "span" (tasks.problem_of); "tokens" for mlm
    logits: bool  # whether any loss reads rows

    @property
    def of_rows(self) -> Problem:
        """What a row of logits is."""
        known: dict[str, Problem] = {"multi": "multi", "score": "score"}
        return known.get(self.problem, "class")


def row_mask(question: Question, batch: Batch) -> Tensor:
    """Which positions are rows, bool (batch, length): the masked ones, or all that are real."""
    return batch["labels"] >= 0 if question.kind == "mlm" else batch["attention_mask"].bool()


def task_rows(question: Question, logits: Tensor, batch: Batch) -> Tensor:
    """The rows of a head's logits: (rows, classes).

    Those of tokens are the real ones; a sequence is one row; a span has a row for its start and one for its end, whose
    classes are the positions.
    """
    if question.problem == "tokens":
        return logits[row_mask(question, batch)]
    if question.problem == "span":
        real = batch["attention_mask"].bool().unsqueeze(-1)  # (batch, length, 1)
        return logits.masked_fill(~real, IMPOSSIBLE).transpose(1, 2).flatten(0, 1)  # (2 batch, length)
    return logits


def look(model: PreTrainedModel, taps: Taps, question: Question, batch: Batch) -> tuple[Tensor, RowsOf | None, States]:
    """Run a model once.

    Returns:
        the last hidden states at the masked positions, (rows, hidden) (mlm; empty else), what gives rows of logits, and
        the inner states.
    """
    inputs = model_inputs(model, batch)
    with taps.open() as states:
        if question.kind == "task":
            logits = task_rows(question, output_of(model(**inputs)), batch)
            return logits.new_empty(0), lambda part: logits[part], states
        encoder: Any = model.base_model
        hidden = encoder(**inputs).last_hidden_state  # (batch, length, hidden)
    masked = hidden[row_mask(question, batch)]  # (rows, hidden)
    return masked, lambda part: mlm_logits(model, masked[part]), states


def layers_of(states: States, batch: Batch) -> dict[int, Layer]:
    """Inner states as the losses read them: the hidden ones without padding, (tokens, hidden)."""
    real = batch["attention_mask"].bool()
    return {
        depth: Layer(**{part: state[real] if part == "hidden" else state for part, state in parts.items()})
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
    ) -> None:
        """Freeze the models and set the taps.

        Args:
            models: of one vocabulary; inner states are read from the first, so ask for none where there are more.
            question: what is asked.
            wanted: parts by depth, see `Taps`.
            weights: how much each model counts; alike if left out.
            temperature: at which the distributions are averaged.
        """
        self.models = list(models)
        self.question, self.temperature = question, temperature
        total = sum(weights) or len(self.models)
        self.weights = [weight / total for weight in weights or [1.0] * len(self.models)]
        self.taps = [Taps(model, wanted) for model in self.models]
        for model in self.models:
            model.train(mode=False)
            model.requires_grad_(requires_grad=False)

    @torch.no_grad()
    def answer(self, batch: Batch) -> Answer:
        """Run the models, on the device of the batch."""
        looks = []
        for model, taps in zip(self.models, self.taps, strict=True):
            if model.device != batch["input_ids"].device:
                model.to(batch["input_ids"].device)  # type: ignore[arg-type]
            looks.append(look(model, taps, self.question, batch))
        layers = layers_of(looks[0][2], batch)
        if not self.question.logits:
            return Answer(None, layers)
        rows = [of for _, of, _ in looks if of is not None]
        return Answer(rows[0] if len(rows) == 1 else lambda part: self._mean(rows, part), layers)

    @torch.no_grad()
    def _mean(self, rows: Sequence[RowsOf], part: slice) -> Tensor:
        each = [of(part) for of in rows]
        logits = [logits.float() for logits in each if isinstance(logits, Tensor)]
        return mean_logits(logits, self.weights, self.temperature, self.question.of_rows)


def mean_logits(logits: Sequence[Tensor], weights: Sequence[float], temperature: float, problem: Problem) -> Tensor:
    """Logits whose distribution at the temperature is the weighted mean of several distributions: (rows, classes) each.

    The weights add up to 1. A score is averaged as the number that it is.
    """
    shares = torch.tensor(weights, device=logits[0].device).view(-1, 1, 1)
    stacked = torch.stack(list(logits)) / temperature  # (teachers, rows, classes)
    if problem == "score":
        return (shares * stacked).sum(dim=0) * temperature
    if problem == "multi":
        yes = (torch.nn.functional.logsigmoid(stacked) + shares.log()).logsumexp(dim=0)
        no = (torch.nn.functional.logsigmoid(-stacked) + shares.log()).logsumexp(dim=0)
        return (yes - no) * temperature
    return (stacked.log_softmax(dim=-1) + shares.log()).logsumexp(dim=0) * temperature


class Recorded:
    """Answers that came with the batch, joined row by row and token by token: see `data.collate`."""

    def __init__(self, question: Question) -> None:
        self.question = question

    def answer(self, batch: Batch) -> Answer:
        """What the batch brings along under `answer.*`."""
        layers = {
            int(name.rpartition(".")[2]): Layer(hidden=tensor)
            for name, tensor in batch.items()
            if name.startswith("answer.hidden.")
        }
        return Answer(self._rows(batch) if self.question.logits else None, layers)

    def _rows(self, batch: Batch) -> RowsOf:
        if "answer.logits" in batch:
            logits = batch["answer.logits"]
            return lambda part: logits[part]
        ids, likely, rest = (batch[f"answer.{name}"] for name in ("ids", "log_probabilities", "rest"))
        return lambda part: TopK(ids[part].long(), likely[part].float(), rest[part].float())
