"""What a model can learn from labels alone: a task."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from biosqueeze.backends.torch import input_names
from biosqueeze.finetuning.layer_decay import layered_groups
from biosqueeze.finetuning.smart import Perturbed, smoothness, word_embedding
from biosqueeze.models.custom_heads import HeadedEncoder, Loss
from biosqueeze.models.heads import output_of
from biosqueeze.training.learner import Learner
from biosqueeze.training.options import TrainingOptions
from biosqueeze.training.parameter_groups import Group
from biosqueeze.training.rng_state import RngState


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
        layer_decay: float = 1.0,
    ) -> None:
        super().__init__()
        self.model = model
        self.own_loss = loss
        self.problem = problem
        self.inputs = input_names(model)
        self.weights: Mapping[str, float] = {"labels": 1.0} | ({"smart": smart} if smart else {})
        self.layer_decay = layer_decay
        self.register_buffer("balance", balance, persistent=False)

    def forward(self, **batch: Tensor) -> dict[str, Tensor]:
        """`labels`: the mean loss over what is scored; `smart`, if asked for: how unsmooth the model is. Scalars."""
        if "smart" not in self.weights:
            return {"labels": self._loss(self._logits(batch), batch)}
        chance = RngState(batch["input_ids"].device)
        logits = self._logits(batch)
        perturbed = Perturbed(lambda: self._logits(batch), word_embedding(self.model), chance)
        return {"labels": self._loss(logits, batch), "smart": smoothness(perturbed, logits, batch, self.problem)}

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, int]:
        """Tokens with a label, or sequences, for every term."""
        scored = int((batch["labels"] >= 0).sum()) if self.problem == "tokens" else len(batch["input_ids"])
        return dict.fromkeys(self.weights, scored)

    def parameter_groups(self, options: TrainingOptions) -> list[Group]:
        """Return AdamW's parameter groups, with learning rates that fall with depth under --layer-decay."""
        if self.layer_decay == 1:
            return super().parameter_groups(options)
        return layered_groups(self, self.model, options.weight_decay, options.lr, self.layer_decay)

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
