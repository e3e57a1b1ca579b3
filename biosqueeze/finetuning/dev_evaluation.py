"""Compute the scores of a model on the dev split during its training."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel

from biosqueeze.backends.predict import predict_all
from biosqueeze.backends.torch import TorchPredictor
from biosqueeze.models.custom_heads.encoder import HeadedEncoder
from biosqueeze.models.custom_heads.load import decoding_parameters
from biosqueeze.progress import warn
from biosqueeze.tasks import Task, Window, with_decoding_parameters
from biosqueeze.tasks.metrics.entities import finds_nothing
from biosqueeze.training.sources import Mixture

EVALUATION_BATCH_SIZE = 32


@dataclass(frozen=True)
class DevSet:
    """The dev split, encoded once."""

    task: Task
    examples: Sequence[Any]
    windows: Sequence[Window]
    labels: tuple[str, ...]
    pad_token_id: int

    @property
    def content(self) -> Mixture:
        """The encoded split with its labels, which identifies a training to resume."""
        return Mixture([window.features for window in self.windows], None, 0.0, self.pad_token_id)

    def evaluator(self, precision: str) -> Callable[[PreTrainedModel | HeadedEncoder], dict[str, float]]:
        """Return a function that computes the scores of a model on this split.

        Args:
            precision: of the training, fp32 or bf16.
        """

        def score(model: PreTrainedModel | HeadedEncoder) -> dict[str, float]:
            return self.task.score(self._gold, self._predictions(model, precision))

        return score

    def warn_of_one_label(self) -> None:
        """Warn of a split whose words or examples all have the same label, or the same set of labels.

        Its scores cannot tell which model is better.
        """
        labels = {label for gold in self._gold for label in (gold if isinstance(gold, tuple) else (gold,))}
        if len(labels) == 1:
            warn("dev has the same label everywhere, so its scores cannot tell which weights are better")

    def warn_of_no_entities(self, model: PreTrainedModel | HeadedEncoder, precision: str) -> None:
        """Warn of a tagger that predicts O for every word, although the split has entities."""
        is_tagger = self.task.HEAD == "token-classification"
        if is_tagger and finds_nothing(self._gold, self._predictions(model, precision)):
            warn("the model predicts no entity at all on dev, only O; train longer (--epochs), or with a higher --lr")

    @property
    def _gold(self) -> list[Any]:
        return [example.gold for example in self.examples]

    def _predictions(self, model: PreTrainedModel | HeadedEncoder, precision: str) -> list[Any]:
        device = str(next(model.parameters()).device)
        predictor = TorchPredictor(model, precision, device)
        logits = predict_all(predictor, self.content.labelled, self.pad_token_id, EVALUATION_BATCH_SIZE)
        task = with_decoding_parameters(self.task, decoding_parameters(model))
        return task.decode(self.windows, logits, self.examples, self.labels)
