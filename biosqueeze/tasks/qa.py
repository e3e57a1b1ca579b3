"""Extractive question answering: the span of a passage that is the answer, as in SQuAD and BioASQ's factoids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.records.sample import SourceSample, available_splits
from biosqueeze.data.tokenizer import Tokenizer
from biosqueeze.tasks import Dataset, Formulation
from biosqueeze.tasks.encoding.sequences import softmax
from biosqueeze.tasks.encoding.spans import SpanCandidate, SpanWindow, best_spans, encode_spans
from biosqueeze.tasks.metrics.answers import Answers, score_answers
from biosqueeze.tasks.readers.questions import Question, columns_of, unlabelled_question
from biosqueeze.tasks.readers.squad import read_questions, sniff_questions


@dataclass(frozen=True)
class Kind:
    """Questions about passages; gold and predictions are `Answers`."""

    HEAD: ClassVar[str] = "question-answering"
    FORM: ClassVar[str] = "questions about passages, with answers"
    METRIC: ClassVar[str] = "f1"
    USES: ClassVar[tuple[str, ...]] = ("column", "stride")

    formulation: Formulation = field(default_factory=Formulation)

    def with_scheme(self, scheme: str) -> Self:  # noqa: ARG002 # nothing here depends on it
        """Return the kind itself."""
        return self

    def sniff(self, sample: SourceSample) -> float:
        """Return 1.0 for SQuAD's format, BioASQ's factoid questions, and records of questions with answers."""
        return float(sniff_questions(sample, self.formulation.column))

    def splits(self, source: str) -> tuple[str, ...]:
        """Return the splits that a source has."""
        return available_splits(source)

    def read(self, source: str, splits: Sequence[str]) -> Dataset:
        """Read splits from SQuAD's or BioASQ's JSON, or from records: see `read_questions`.

        Raises:
            SqueezeError: the data cannot be read; the message names file and question.
        """
        return read_questions(source, splits, self.formulation.column)

    def encode(
        self,
        examples: Sequence[Question],
        labels: Sequence[str],  # noqa: ARG002 # spans have none
        tokenizer: Tokenizer,
        max_length: int,
    ) -> list[SpanWindow]:
        """Return windows of at most max_length tokens over every passage, each after the question.

        Raises:
            SqueezeError: max_length leaves no room for text.
            UsageError: the stride is negative.
        """
        return encode_spans(examples, tokenizer, max_length, self.formulation.stride)

    def decode(
        self,
        windows: Sequence[SpanWindow],
        logits: Sequence[NDArray[np.float32]],
        examples: Sequence[Question],
        labels: Sequence[str],  # noqa: ARG002
    ) -> list[Answers]:
        """Return the best answers to every question, over all of its passages.

        Args:
            windows: as returned by `encode`.
            logits: for each window (length or more, 2), start and end.
            examples: the encoded questions.
            labels: none.
        """
        spans, nulls = best_spans(windows, logits, examples)
        return [
            Answers(tuple(span.text for span in candidates), tuple(span.score for span in candidates), null)
            for candidates, null in zip(spans, nulls, strict=True)
        ]

    def score(self, gold: Sequence[Answers], predicted: Sequence[Answers]) -> dict[str, float]:
        """Return SQuAD's exact match and F1, BioASQ's accuracies and mean reciprocal rank: see `score_answers`."""
        return score_answers(gold, predicted)

    def example_from_record(self, record: Mapping[str, Any]) -> Question:
        """Return an unlabelled question from {"question", "context"}.

        Raises:
            SqueezeError: a field is missing.
        """
        return unlabelled_question(record, columns_of(self.formulation.column, labelled=False))

    def describe(
        self,
        windows: Sequence[SpanWindow],
        logits: Sequence[NDArray[np.float32]],
        examples: Sequence[Question],
        labels: Sequence[str],  # noqa: ARG002
    ) -> list[dict[str, Any]]:
        """Return for each question its best answers with character offsets and scores, and the score of no answer.

        The scores are a softmax over the returned answers and no answer, so they add up to 1.
        """
        spans, nulls = best_spans(windows, logits, examples)
        return [_described(candidates, null) for candidates, null in zip(spans, nulls, strict=True)]


def _described(candidates: Sequence[SpanCandidate], null: float) -> dict[str, Any]:
    no_answer, *probabilities = softmax(np.array([null, *(candidate.score for candidate in candidates)])).tolist()
    several = len({candidate.passage for candidate in candidates}) > 1
    answers = [
        {"text": c.text, "start": c.start, "end": c.end, "score": score} | ({"passage": c.passage} if several else {})
        for c, score in zip(candidates, probabilities, strict=True)
    ]
    return {"answers": answers, "no_answer": no_answer}
