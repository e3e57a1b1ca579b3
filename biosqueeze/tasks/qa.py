"""Span question answering: where in a passage the answer stands, as in SQuAD and in BioASQ's factoid questions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from biosqueeze.tasks import Dataset, Formulation
from biosqueeze.tasks.encoding.spans import Candidate, SpanWindow, best_spans, encode_spans
from biosqueeze.tasks.metrics import answers as _answers
from biosqueeze.tasks.metrics.answers import Answers
from biosqueeze.tasks.readers.questions import Question, columns_of, unlabelled_question
from biosqueeze.tasks.readers.squad import read_questions

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["Answers", "Kind", "Question", "SpanWindow"]


@dataclass(frozen=True)
class Kind:
    """Questions about passages; gold and predictions are `Answers`."""

    HEAD: ClassVar[str] = "question-answering"
    METRIC: ClassVar[str] = "f1"
    SPLITS: ClassVar[tuple[str, ...]] = ("train", "dev", "test")
    USES: ClassVar[tuple[str, ...]] = ("column", "stride")

    form: Formulation = field(default_factory=Formulation)

    def with_scheme(self, scheme: str) -> Self:  # noqa: ARG002 # nothing here depends on it
        """The same."""
        return self

    def read(self, source: str, splits: Sequence[str]) -> Dataset:
        """Read splits from SQuAD's or BioASQ's JSON, or from records; see `read_questions`.

        Raises:
            SqueezeError: it cannot be read; the message names file and question.
        """
        return read_questions(source, splits, self.form.column)

    def encode(
        self,
        examples: Sequence[Question],
        labels: Sequence[str],  # noqa: ARG002 # spans have none
        tokenizer: "PreTrainedTokenizerBase",
        max_length: int,
    ) -> list[SpanWindow]:
        """Windows of at most max_length tokens over every passage, the question before each.

        Raises:
            SqueezeError: max_length leaves no room for text.
            UsageError: the stride is negative.
        """
        return encode_spans(examples, tokenizer, max_length, self.form.stride)

    def decode(
        self,
        windows: Sequence[SpanWindow],
        logits: Sequence[NDArray[np.float32]],
        examples: Sequence[Question],
        labels: Sequence[str],  # noqa: ARG002
    ) -> list[Answers]:
        """The best answers to every question, over all of its passages.

        Args:
            windows: as `encode` gave them.
            logits: for each window (length or more, 2), start and end.
            examples: the questions that were encoded.
            labels: none.
        """
        found, nulls = best_spans(windows, logits, examples)
        return [
            Answers(tuple(c.text for c in candidates), tuple(c.score for c in candidates), null)
            for candidates, null in zip(found, nulls, strict=True)
        ]

    def score(self, gold: Sequence[Answers], predicted: Sequence[Answers]) -> dict[str, float]:
        """SQuAD's exact match and F1, and BioASQ's accuracies and mean reciprocal rank; see `_answers.score`."""
        return _answers.score(gold, predicted)

    def pose(self, record: Mapping[str, Any]) -> Question:
        """A question from {"question", "context"}.

        Raises:
            SqueezeError: one of them is missing.
        """
        return unlabelled_question(record, columns_of(self.form.column, labelled=False))

    def describe(
        self,
        windows: Sequence[SpanWindow],
        logits: Sequence[NDArray[np.float32]],
        examples: Sequence[Question],
        labels: Sequence[str],  # noqa: ARG002
    ) -> list[dict[str, Any]]:
        """For each question its best answers with characters of the context and scores, and that of no answer.

        The scores are a softmax over the answers named and no answer, so they add up to 1.
        """
        found, nulls = best_spans(windows, logits, examples)
        return [_described(candidates, null) for candidates, null in zip(found, nulls, strict=True)]


def _described(candidates: Sequence[Candidate], null: float) -> dict[str, Any]:
    raw = np.array([null, *(candidate.score for candidate in candidates)])
    raised = np.exp(raw - raw.max())
    chances = (raised / raised.sum()).tolist()
    several = len({candidate.passage for candidate in candidates}) > 1
    answers = [
        {"text": c.text, "start": c.start, "end": c.end, "score": chance} | ({"passage": c.passage} if several else {})
        for c, chance in zip(candidates, chances[1:], strict=True)
    ]
    return {"answers": answers, "no_answer": chances[0]}
