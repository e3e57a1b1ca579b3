"""What a model can learn: a task from its labels, or a teacher's outputs and hidden states."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from biosqueeze import registry
from biosqueeze.backends.torch import input_names
from biosqueeze.models.custom import HeadedEncoder, Loss
from biosqueeze.models.heads import mlm_logits, output_of
from biosqueeze.objectives import Signals
from biosqueeze.training.loop import Learner
from biosqueeze.training.smart import Chance, Perturbed, smoothness, word_embedding


class FineTuner(Learner):
    """A model that learns a task from its truth; see `tasks.problem_of` for what a problem's features hold."""

    balance: Tensor | None

    def __init__(
        self,
        model: PreTrainedModel | HeadedEncoder,
        problem: str = "tokens",
        *,
        loss: Loss | None = None,
        balance: Tensor | None = None,
        smart: float = 0.0,
    ) -> None:
        super().__init__()
        self.model = model
        self.own_loss = loss
        self.problem = problem
        self.inputs = input_names(model)
        self.weights: Mapping[str, float] = {"labels": 1.0} | ({"smart": smart} if smart else {})
        self.register_buffer("balance", balance, persistent=False)

    def forward(self, **batch: Tensor) -> dict[str, Tensor]:
        """`labels`: the mean loss over what is scored; `smart`, if asked for: how unsmooth the model is. Scalars."""
        if "smart" not in self.weights:
            return {"labels": self._loss(self._logits(batch), batch)}
        chance = Chance(batch["input_ids"].device)
        logits = self._logits(batch)
        perturbed = Perturbed(lambda: self._logits(batch), word_embedding(self.model), chance)
        return {"labels": self._loss(logits, batch), "smart": smoothness(perturbed, logits, batch, self.problem)}

    def scored(self, batch: Mapping[str, Tensor]) -> int:
        """Tokens with a label, or sequences."""
        return int((batch["labels"] >= 0).sum()) if self.problem == "tokens" else len(batch["input_ids"])

    def _logits(self, batch: Mapping[str, Tensor]) -> Tensor:
        return output_of(self.model(**{name: batch[name] for name in self.inputs if name in batch})).float()

    def _loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        if self.own_loss is not None:
            return self.own_loss(logits, batch)
        loss = _LOSSES[self.problem]
        return loss(logits, batch) if self.balance is None else loss(logits, batch, self.balance)


def token_loss(logits: Tensor, batch: Mapping[str, Tensor], weights: Tensor | None = None) -> Tensor:
    """Mean cross entropy over the tokens that have a label: logits (batch, length, labels), labels (batch, length).

    The weights, (labels,), scale each token's loss and not what it is divided by: over the whole training set their
    mean is 1.
    """
    labels = batch["labels"]
    total = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), weight=weights, reduction="sum")
    return total / (labels >= 0).sum().clamp(min=1)


def class_loss(logits: Tensor, batch: Mapping[str, Tensor], weights: Tensor | None = None) -> Tensor:
    """Mean cross entropy: logits (batch, classes), labels (batch,), weights (classes,)."""
    if weights is None:
        return functional.cross_entropy(logits, batch["labels"])
    return functional.cross_entropy(logits, batch["labels"], weight=weights, reduction="sum") / len(logits)


def multi_loss(logits: Tensor, batch: Mapping[str, Tensor], weights: Tensor | None = None) -> Tensor:
    """Mean binary cross entropy over all decisions: logits and targets (batch, classes), weights (2, classes)."""
    targets = batch["targets"].float()
    each = None if weights is None else torch.where(targets > 0.5, weights[1], weights[0])  # (batch, classes)
    return functional.binary_cross_entropy_with_logits(logits, targets, weight=each)


def score_loss(logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """Mean squared error: logits (batch, 1), targets (batch,)."""
    return functional.mse_loss(logits.squeeze(-1), batch["targets"].float())


def span_loss(logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """Mean of the cross entropies of start and end over the real tokens: logits (batch, length, 2), starts (batch,)."""
    real = batch["attention_mask"].bool().unsqueeze(-1)
    starts, ends = logits.masked_fill(~real, torch.finfo(logits.dtype).min).unbind(-1)  # (batch, length) each
    return (functional.cross_entropy(starts, batch["starts"]) + functional.cross_entropy(ends, batch["ends"])) / 2


_LOSSES: Mapping[str, Callable[..., Tensor]] = {
    "tokens": token_loss,
    "single": class_loss,
    "multi": multi_loss,
    "score": score_loss,
    "span": span_loss,
}


@dataclass(frozen=True)
class Recipe:
    """How to distil.

    The kind ("mlm" or "task"), the weighted losses, the temperature of soft labels, and the student's dropout (None is
    its config's).
    """

    kind: str
    weights: Mapping[str, float]
    temperature: float
    dropout: float | None = None


@dataclass(frozen=True)
class _View:
    """What one model said about a batch, padding cut away."""

    logits: Tensor | None  # (rows, classes)
    hidden: Tensor  # (tokens, hidden)


def _set_dropout(model: nn.Module, share: float) -> None:
    """Set all dropout while training; config.json, and with it later fine-tuning, keeps its own."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = share


class Distiller(Learner):
    """A student that learns from a frozen teacher; a learned projection bridges different widths (bio-lm)."""

    def __init__(
        self, student: PreTrainedModel, teacher: PreTrainedModel, recipe: Recipe, *, teacher_has_head: bool
    ) -> None:
        super().__init__()
        self.model = student
        self.recipe, self.weights = recipe, recipe.weights
        if recipe.dropout is not None:
            _set_dropout(student, recipe.dropout)
        self.losses = {name: registry.load("objectives", name).loss for name in recipe.weights}
        narrow, wide = student.config.hidden_size, teacher.config.hidden_size
        self.projection: nn.Module = nn.Linear(narrow, wide) if narrow != wide else nn.Identity()
        # In a tuple, so that the teacher is no submodule: it is neither trained nor saved nor wrapped.
        self._teacher: tuple[PreTrainedModel] = (teacher,)
        teacher.train(mode=False)
        teacher.requires_grad_(requires_grad=False)
        self.teacher_has_head = teacher_has_head

    @property
    def teacher(self) -> PreTrainedModel:
        """The frozen teacher."""
        return self._teacher[0]

    def forward(self, **batch: Tensor) -> dict[str, Tensor]:
        """Each loss of the recipe, unweighted. Scalars."""
        device = batch["input_ids"].device
        if next(self.teacher.parameters()).device != device:
            nn.Module.to(self.teacher, device)
        student = self._look(self.model, batch, with_logits=True)
        with torch.no_grad():
            teacher = self._look(self.teacher, batch, with_logits=self.teacher_has_head)
        if student.logits is None:
            raise ValueError("a student without a head cannot be distilled")
        signals = Signals(
            labels=self._labels(batch),
            student_logits=student.logits,
            teacher_logits=teacher.logits,
            student_hidden=self.projection(student.hidden),
            teacher_hidden=teacher.hidden,
            temperature=self.recipe.temperature,
        )
        return {name: loss(signals) for name, loss in self.losses.items()}

    def _look(self, model: PreTrainedModel, batch: Mapping[str, Tensor], *, with_logits: bool) -> _View:
        real = batch["attention_mask"].bool()  # (batch, length)
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        if self.recipe.kind == "task":
            output = model(**inputs, output_hidden_states=True)
            return _View(output.logits[real] if with_logits else None, output.hidden_states[-1][real])
        encoder: Any = model.base_model
        hidden = encoder(**inputs).last_hidden_state  # (batch, length, hidden)
        masked = batch["labels"] >= 0
        return _View(mlm_logits(model, hidden[masked]) if with_logits else None, hidden[real])

    def _labels(self, batch: Mapping[str, Tensor]) -> Tensor:
        if self.recipe.kind == "task":
            return batch["labels"][batch["attention_mask"].bool()]
        return batch["labels"][batch["labels"] >= 0]
