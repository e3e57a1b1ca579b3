"""Teachers that read other tokens than the student: what they say of words and of whole texts is asked beforehand.

Tokens of two vocabularies do not match, but what they are read from does: a word is a stretch of characters, and each
reader answers for it on its first piece; a text is a text. So every example is encoded for each teacher, answered, and
the answer is put where the student reads the same word, or the same text.
"""

from collections.abc import Iterator, Mapping, Sequence
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
from biosqueeze.distillation.loss_config import LossConfig
from biosqueeze.distillation.teachers import mean_logits
from biosqueeze.errors import UsageError
from biosqueeze.progress import track
from biosqueeze.tasks import Task, Window
from biosqueeze.training.device import own_device

_EXAMPLES_AT_ONCE = 1024
_BATCH = 32

Floats = NDArray[np.float32]
# Of one example: logits by word, or under -1 of the whole text.
_Said = dict[int, Floats]
WHOLE = -1


@dataclass(frozen=True)
class Reader:
    """One who reads examples: a model with its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    length: int  # tokens in a sequence


@dataclass(frozen=True)
class CrossVocabularyTeachers:
    """Teachers with vocabularies of their own, and how their answers are averaged."""

    readers: Sequence[Reader]
    shares: Sequence[float]
    task: Task
    labels: tuple[str, ...]
    recipe: LossConfig
    precision: str

    def answered(self, examples: Sequence[Any], windows: Sequence[Window], what: str) -> list[Features]:
        """The windows of the student with what the teachers say of each.

        Args:
            examples: of the task.
            windows: how the student reads them.
            what: what these examples are, for the progress.

        Returns:
            for each window its features; `teacher.logits` (rows, classes), and for tokens `teacher_positions`
            (length,): 1 where there is a row, on the first piece of each word that the window answers for.
        """
        said: list[_Said] = []
        with track(f"ask the teachers about {what}", len(examples)) as progress:
            for start in range(0, len(examples), _EXAMPLES_AT_ONCE):
                part = examples[start : start + _EXAMPLES_AT_ONCE]
                said += self._mean([list(self._ask(reader, part)) for reader in self.readers])
                progress.advance(len(part))
        return [_with_answer(window, said[window.example], len(self.labels)) for window in windows]

    def _ask(self, reader: Reader, examples: Sequence[Any]) -> Iterator[_Said]:
        """What one teacher says of each example."""
        windows = self.task.encode(examples, self.labels, reader.tokenizer, reader.length)
        device = own_device()
        predictor = TorchPredictor(reader.model.to(device), self.precision, str(device))  # type: ignore[arg-type]
        pad = int(reader.tokenizer.pad_token_id)
        logits = predict_all(predictor, [window.features for window in windows], pad, _BATCH)
        said: list[_Said] = [{} for _ in examples]
        for window, rows in zip(windows, logits, strict=True):
            said[window.example].update(_by_word(window.features, rows))
        yield from said

    def _mean(self, each: Sequence[Sequence[_Said]]) -> list[_Said]:
        """The weighted mean of the teachers' distributions, example by example."""
        if len(each) == 1:
            return list(each[0])
        return [self._mean_of(said) for said in zip(*each, strict=True)]

    def _mean_of(self, said: Sequence[_Said]) -> _Said:
        words = [word for word in said[0] if all(word in other for other in said)]
        if not words:
            return {}
        logits = [torch.from_numpy(np.stack([one[word] for word in words])) for one in said]
        total = sum(self.shares)
        shares = [share / total for share in self.shares]
        mean = mean_logits(logits, shares, self.recipe.temperature, self.recipe.question.tensors.row_kind).numpy()
        return dict(zip(words, mean, strict=True))


def _by_word(features: Mapping[str, NDArray[Any]], logits: Floats) -> _Said:
    """Logits (length, classes) on the first piece of each word that the window answers for; or (classes,) of a text."""
    if logits.ndim == 1:
        return {WHOLE: logits}
    places = np.flatnonzero(features[WORDS] >= 0)
    return {int(features[WORDS][place]): logits[place] for place in places}


def _with_answer(window: Window, said: _Said, classes: int) -> Features:
    features = {name: values for name, values in window.features.items() if name != WORDS}
    if WHOLE in said:
        return {**features, TEACHER_LOGITS: said[WHOLE][None]}
    words = window.features[WORDS]
    asked = np.array([word in said for word in words.tolist()], dtype=np.int64)
    rows = [said[word] for word in words[asked > 0].tolist()]
    logits = np.array(rows, dtype=np.float32).reshape(-1, classes)
    return {**features, TEACHER_POSITIONS: asked, TEACHER_LOGITS: logits}


def check_foreign(recipe: LossConfig, output_type: OutputType, student: str, teacher: str) -> None:
    """Say what cannot be learned across vocabularies.

    Raises:
        UsageError: a loss compares tokens, or the head answers with tokens.
    """
    states = [name for name, loss in recipe.losses.items() if loss.READS != "rows"]
    why = f"{student} and {teacher} have different vocabularies, so their tokens do not match"
    if states:
        raise UsageError(f"{why}, and --loss {', '.join(states)} compares them token by token; give --loss kl or soft")
    if output_type.classes_are_positions:
        raise UsageError(
            f"{why}, and a span is said in tokens; take a student with the teacher's vocabulary (biosqueeze shrink)"
        )
