"""A fine-tuned checkpoint loaded on one backend: encode examples, compute logits, decode them to predictions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biosqueeze.backends import Predictor, open_predictor
from biosqueeze.backends.finite import check_decoding_parameters, check_finite
from biosqueeze.backends.predict import predict_all
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.data.tokenizer import InferenceTokenizer
from biosqueeze.finetuning.finetuned_checkpoint import sequence_length
from biosqueeze.models.custom_heads.files import saved_decoding_parameters
from biosqueeze.models.tokenizers.text_tokenizer import load_text_tokenizer
from biosqueeze.tasks import Task, Window, with_decoding_parameters


@dataclass(frozen=True, kw_only=True)
class InferenceSettings:
    """How a fine-tuned checkpoint is run."""

    backend: str
    """RUNTIME[:PRECISION]."""
    batch_size: int
    max_length: int | None
    """Tokens in a sequence; None for that of the fine-tuning."""
    threads: int | None
    """None for the runtime's default."""
    device: str
    """That the backend runs on."""


@dataclass(frozen=True)
class TaskModel:
    """A loaded model with its task, labels and tokenizer."""

    checkpoint: Checkpoint
    backend: str
    task: Task
    labels: tuple[str, ...]
    tokenizer: InferenceTokenizer
    predictor: Predictor
    max_length: int
    batch_size: int

    def encode(self, examples: Sequence[Any]) -> Sequence[Window]:
        """Return the model inputs of the examples: one or more windows each."""
        return self.task.encode(examples, self.labels, self.tokenizer, self.max_length)

    def logits(self, windows: Sequence[Window]) -> list[NDArray[np.float32]]:
        """Compute the logits of every window: (length, outputs) or (outputs,) each.

        Raises:
            SqueezeError: a logit is NaN or infinite.
        """
        features = [window.features for window in windows]
        rows = predict_all(self.predictor, features, self.tokenizer.pad_token_id, self.batch_size)
        check_finite(rows, self.checkpoint, self.backend)
        return rows

    def predict(self, examples: Sequence[Any]) -> list[Any]:
        """Return one prediction per example, comparable with its gold labels."""
        windows = self.encode(examples)
        return self.task.decode(windows, self.logits(windows), examples, self.labels)

    def describe(self, windows: Sequence[Window], examples: Sequence[Any]) -> list[dict[str, Any]]:
        """Return one JSON-ready prediction per example of encoded windows: scores from 0 to 1, character offsets."""
        return self.task.describe(windows, self.logits(windows), examples, self.labels)


def load_task_model(checkpoint: Checkpoint, task: Task, settings: InferenceSettings) -> TaskModel:
    """Load a fine-tuned checkpoint with its tokenizer and the parameters of its decoding.

    Raises:
        UsageError: there is no such backend.
        SqueezeError: the checkpoint lacks files, or they are damaged.
    """
    tokenizer = load_text_tokenizer(checkpoint)
    parameters = saved_decoding_parameters(checkpoint)
    check_decoding_parameters(parameters, checkpoint)
    return TaskModel(
        checkpoint=checkpoint,
        backend=settings.backend,
        task=with_decoding_parameters(task, parameters),
        labels=checkpoint.labels,
        tokenizer=tokenizer,
        predictor=open_predictor(checkpoint, settings.backend, threads=settings.threads),
        max_length=sequence_length(checkpoint, settings.max_length, tokenizer.model_max_length),
        batch_size=settings.batch_size,
    )
