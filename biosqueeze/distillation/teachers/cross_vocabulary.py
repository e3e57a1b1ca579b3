"""Teachers with another vocabulary than the student: their logits of words and whole texts, computed in advance.

Tokens of two vocabularies do not match, but words and texts do. A word is a range of characters, and each model
predicts it on its first token. So every example is encoded for each teacher, and the teacher's logits are attached to
the student's encoding of the same word or the same text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from biosqueeze.backends.predict import predict_all
from biosqueeze.backends.torch import TorchPredictor
from biosqueeze.data.collate import Features
from biosqueeze.data.feature_keys import TEACHER_LOGITS, TEACHER_POSITIONS, WORDS
from biosqueeze.data.output_types import OutputType
from biosqueeze.distillation.losses.config import LossConfig
from biosqueeze.distillation.teachers.sources import mean_logits
from biosqueeze.errors import UsageError
from biosqueeze.models.device import own_device
from biosqueeze.progress import track
from biosqueeze.tasks import Task, Window

_EXAMPLES_AT_ONCE = 1024
_BATCH = 32

Floats = NDArray[np.float32]
# Logits of one example, (classes,) each: by word, or of the whole text under the key WHOLE.
LogitsByWord = dict[int, Floats]
WHOLE = -1


@dataclass(frozen=True)
class TeacherWithTokenizer:
    """A teacher, its tokenizer, and the length of its sequences."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    length: int  # tokens in a sequence


@dataclass(frozen=True)
class CrossVocabularyTeachers:
    """Teachers with other vocabularies, and the weights of their mean."""

    teachers: Sequence[TeacherWithTokenizer]
    weights: Sequence[float]
    task: Task
    labels: tuple[str, ...]
    loss_config: LossConfig
    precision: str

    def add_outputs(self, examples: Sequence[Any], windows: Sequence[Window], what: str) -> list[Features]:
        """Compute the teachers' logits and add them to the features of the student's windows.

        Args:
            examples: of the task.
            windows: the student's encoding of them.
            what: what these examples are, for the progress display.

        Returns:
            for each window its features with `teacher.logits` (rows, classes), and for token classification
            `teacher_positions` (length,): 1 where there is a row, on the first token of each word predicted there.
        """
        logits: list[LogitsByWord] = []
        with track(f"run the teachers on {what}", len(examples)) as progress:
            for start in range(0, len(examples), _EXAMPLES_AT_ONCE):
                part = examples[start : start + _EXAMPLES_AT_ONCE]
                logits += self._mean([self._logits(teacher, part) for teacher in self.teachers])
                progress.advance(len(part))
        return [_with_logits(window, logits[window.example], len(self.labels)) for window in windows]

    def _logits(self, teacher: TeacherWithTokenizer, examples: Sequence[Any]) -> list[LogitsByWord]:
        """Compute one teacher's logits of each example."""
        windows = self.task.encode(examples, self.labels, teacher.tokenizer, teacher.length)
        device = own_device()
        predictor = TorchPredictor(teacher.model.to(device), self.precision, str(device))  # type: ignore[arg-type]
        padding = int(teacher.tokenizer.pad_token_id)
        rows = predict_all(predictor, [window.features for window in windows], padding, _BATCH)
        logits: list[LogitsByWord] = [{} for _ in examples]
        for window, window_rows in zip(windows, rows, strict=True):
            logits[window.example].update(_by_word(window.features, window_rows))
        return logits

    def _mean(self, by_teacher: Sequence[Sequence[LogitsByWord]]) -> list[LogitsByWord]:
        """Average the teachers' distributions, example by example."""
        if len(by_teacher) == 1:
            return list(by_teacher[0])
        return [self._mean_of_example(logits) for logits in zip(*by_teacher, strict=True)]

    def _mean_of_example(self, by_teacher: Sequence[LogitsByWord]) -> LogitsByWord:
        """Average the distributions of the words that all teachers predict."""
        words = [word for word in by_teacher[0] if all(word in logits for logits in by_teacher)]
        if not words:
            return {}
        stacked = [torch.from_numpy(np.stack([logits[word] for word in words])) for logits in by_teacher]
        total = sum(self.weights)
        weights = [weight / total for weight in self.weights]
        config = self.loss_config
        mean = mean_logits(stacked, weights, config.temperature, config.output_spec.tensors.row_kind).numpy()
        return dict(zip(words, mean, strict=True))


def _by_word(features: Mapping[str, NDArray[Any]], logits: Floats) -> LogitsByWord:
    """Select the logits of each word's first token from (length, classes); or those of a text, (classes,)."""
    if logits.ndim == 1:
        return {WHOLE: logits}
    places = np.flatnonzero(features[WORDS] >= 0)
    return {int(features[WORDS][place]): logits[place] for place in places}


def _with_logits(window: Window, logits: LogitsByWord, classes: int) -> Features:
    features = {name: values for name, values in window.features.items() if name != WORDS}
    if WHOLE in logits:
        return {**features, TEACHER_LOGITS: logits[WHOLE][None]}
    words = window.features[WORDS]
    positions = np.array([word in logits for word in words.tolist()], dtype=np.int64)
    rows = [logits[word] for word in words[positions > 0].tolist()]
    return {
        **features,
        TEACHER_POSITIONS: positions,
        TEACHER_LOGITS: np.array(rows, dtype=np.float32).reshape(-1, classes),
    }


def check_cross_vocabulary(loss_config: LossConfig, output_type: OutputType, student: str, teacher: str) -> None:
    """Check that the losses can be computed across vocabularies.

    Raises:
        UsageError: a loss compares tokens, or the outputs are token positions.
    """
    layered = [name for name, loss in loss_config.losses.items() if loss.READS != "rows"]
    cause = f"{student} and {teacher} have different vocabularies, so their tokens do not match"
    if layered:
        raise UsageError(
            f"{cause}, and --loss {', '.join(layered)} compares them token by token; give --loss kl or soft"
        )
    if output_type.classes_are_positions:
        raise UsageError(
            f"{cause}, and spans are token positions; take a student with the teacher's vocabulary (biosqueeze shrink)"
        )
