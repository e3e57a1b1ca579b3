"""The output types of task models: one class per type, for everything that needs no torch.

A new output type is a class here, and one in `models.output_tensors`.

| type | logits | label features |
|---|---|---|
| tokens | (batch, length, classes) | `labels` (length,): a class id, -100 without a label |
| single | (batch, classes) | `labels` (): a class id, -100 without a label |
| multi | (batch, classes) | `targets` (classes,): 1.0 for every class that holds; NaN without a label |
| score | (batch, 1) | `targets` (): a number; NaN without a label |
| span | (batch, length, 2) | `starts` and `ends` (): token positions, 0 without an answer; -100 without a label |
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.collate import Features
from biosqueeze.data.feature_keys import ATTENTION_MASK, ENDS, IGNORED, LABELS, STARTS, TARGETS
from biosqueeze.model_facts import head_of, output_width

Logits = NDArray[np.float32]
Batch = Mapping[str, NDArray[Any]]

_LEAST_TOKENS = 20  # fewer predictions than this on one side are not averaged by themselves
_LEAST_LOST = 5  # so many other predictions than the commonest, all lost, are a collapse; fewer may be close decisions


@dataclass(frozen=True)
class OutputType(ABC):
    """What the logits of a model with a task head mean."""

    name: ClassVar[str]
    head: ClassVar[str]  # the head, as `model_facts.head_of` calls it
    problem_type: ClassVar[str | None] = None  # in config.json, which tells heads of one architecture apart
    has_probabilities: ClassVar[bool] = True  # whether a temperature applies
    classes_are_positions: ClassVar[bool] = False  # whether classes are token positions, different in every batch
    agreement_measure: ClassVar[str] = "share of equal predictions"  # what `agreement` returns

    has_background: ClassVar[bool] = True  # whether the commonest class means that there is nothing, as O of a tagger

    @property
    def has_classes(self) -> bool:
        """Whether the logits are of classes that are the same in every batch."""
        return self.has_probabilities and not self.classes_are_positions

    def predicted_classes(self, logits: Logits) -> NDArray[np.bool_]:
        """Return which classes are predicted at least once in a sequence.

        Args:
            logits: of one sequence without padding, ([length,] classes).

        Returns:
            (classes,).
        """
        return np.isin(np.arange(logits.shape[-1]), logits.argmax(-1))

    @abstractmethod
    def unlabelled(self, length: int, classes: int) -> Features:
        """Return the label features of an example without a label.

        Args:
            length: tokens of the example.
            classes: number of labels of the model.
        """

    def vectors(self, logits: Logits, batch: Batch) -> Logits:
        """Return the logits that count, (vectors, classes): those of sequences, or of real tokens without padding."""
        del batch
        return logits

    def predictions(self, logits: Logits, batch: Batch) -> NDArray[Any]:
        """Return the predictions that the logits stand for, (predictions,)."""
        return _likeliest(self.vectors(logits, batch))

    def agreement(self, reference: NDArray[Any], candidate: NDArray[Any]) -> float:
        """Compare the predictions of two runtimes, (predictions,) each.

        Returns:
            the share of equal predictions: the mean over the reference's commonest prediction and all its others, so
            that a model that collapsed to the commonest one (a tagger that predicts only O) cannot exceed one half.
        """
        same = reference == candidate
        common = reference == np.bincount(reference).argmax()
        others = (~common).sum()
        collapsed = others >= _LEAST_LOST and len(np.unique(candidate)) == 1
        if not collapsed and min(common.sum(), others) < _LEAST_TOKENS:
            return float(same.mean())
        return float((same[common].mean() + same[~common].mean()) / 2)

    def class_counts(self, features: Sequence[Features], classes: int) -> NDArray[np.int64] | None:
        """Count the labels of a training set.

        Returns:
            (classes,) for one class per item; (2, classes) for independent classes: how often each does not hold, and
            how often it does; None where labels are not classes.
        """
        del features, classes
        return None


@dataclass(frozen=True)
class TokenOutput(OutputType):
    """One class for each token; a masked language model and an encoder without a head are compared so too."""

    name: ClassVar[str] = "tokens"
    head: ClassVar[str] = "token-classification"

    def unlabelled(self, length: int, classes: int) -> Features:
        """Return `labels` (length,) of -100."""
        del classes
        return {LABELS: np.full(length, IGNORED, dtype=np.int64)}

    def vectors(self, logits: Logits, batch: Batch) -> Logits:
        """Return the logits at real tokens, (tokens, classes)."""
        return _at_real_tokens(logits, batch)

    def class_counts(self, features: Sequence[Features], classes: int) -> NDArray[np.int64]:
        """Count the class ids of all tokens with a label, (classes,)."""
        return _counts_of_ids(features, classes)


@dataclass(frozen=True)
class SingleOutput(OutputType):
    """One class for each sequence."""

    name: ClassVar[str] = "single"
    head: ClassVar[str] = "sequence-classification"
    problem_type: ClassVar[str | None] = "single_label_classification"

    def unlabelled(self, length: int, classes: int) -> Features:
        """Return `labels` () of -100."""
        del length, classes
        return {LABELS: np.array(IGNORED, dtype=np.int64)}

    def class_counts(self, features: Sequence[Features], classes: int) -> NDArray[np.int64]:
        """Count the class ids of all sequences with a label, (classes,)."""
        return _counts_of_ids(features, classes)


@dataclass(frozen=True)
class MultiOutput(OutputType):
    """Any number of classes for each sequence, each decided independently at a probability of 0.5."""

    name: ClassVar[str] = "multi"
    head: ClassVar[str] = "sequence-classification"
    problem_type: ClassVar[str | None] = "multi_label_classification"
    has_background: ClassVar[bool] = False

    def unlabelled(self, length: int, classes: int) -> Features:
        """Return `targets` (classes,) of NaN."""
        del length
        return {TARGETS: np.full(classes, np.nan, dtype=np.float32)}

    def predictions(self, logits: Logits, batch: Batch) -> NDArray[Any]:
        """Return 1 for each pair of a sequence and a class that holds, else 0: (batch * classes,)."""
        del batch
        return (logits > 0).astype(np.intp).ravel()

    def predicted_classes(self, logits: Logits) -> NDArray[np.bool_]:
        """Return which classes hold, (classes,)."""
        return logits > 0

    def class_counts(self, features: Sequence[Features], classes: int) -> NDArray[np.int64]:
        """Count for each class the items without it and with it, (2, classes)."""
        holds = np.stack([feature[TARGETS] for feature in features]) > 0.5  # (items, classes)
        return np.stack([np.bincount(holds[:, c], minlength=2) for c in range(classes)], axis=1)


@dataclass(frozen=True)
class ScoreOutput(OutputType):
    """A number for each sequence."""

    name: ClassVar[str] = "score"
    head: ClassVar[str] = "sequence-classification"
    problem_type: ClassVar[str | None] = "regression"
    has_probabilities: ClassVar[bool] = False
    agreement_measure: ClassVar[str] = "correlation of scores"

    def unlabelled(self, length: int, classes: int) -> Features:
        """Return `targets` () of NaN."""
        del length, classes
        return {TARGETS: np.array(np.nan, dtype=np.float32)}

    def predictions(self, logits: Logits, batch: Batch) -> NDArray[Any]:
        """Return the numbers, (batch,)."""
        del batch
        return logits.ravel()

    def agreement(self, reference: NDArray[Any], candidate: NDArray[Any]) -> float:
        """Return Pearson's correlation; where one side is constant, 1 if both are equal and else 0."""
        if min(np.ptp(reference), np.ptp(candidate)) == 0:
            return float(np.array_equal(reference, candidate))
        return float(np.corrcoef(reference, candidate)[0, 1])


@dataclass(frozen=True)
class SpanOutput(OutputType):
    """The first and the last token of a span in each sequence."""

    name: ClassVar[str] = "span"
    head: ClassVar[str] = "question-answering"
    classes_are_positions: ClassVar[bool] = True

    def unlabelled(self, length: int, classes: int) -> Features:
        """Return `starts` and `ends` () of -100."""
        del length, classes
        return {key: np.array(IGNORED, dtype=np.int64) for key in (STARTS, ENDS)}

    def vectors(self, logits: Logits, batch: Batch) -> Logits:
        """Return the logits at real tokens, (tokens, 2)."""
        return _at_real_tokens(logits, batch)

    def predictions(self, logits: Logits, batch: Batch) -> NDArray[Any]:
        """Return the likeliest start and end of each sequence among its real tokens, (batch * 2,)."""
        real = (batch[ATTENTION_MASK] == 1)[:, :, None]  # (batch, length, 1)
        positions: NDArray[np.intp] = np.where(real, logits, -np.inf).argmax(axis=1)  # (batch, 2)
        return positions.ravel()


TOKENS, SINGLE, MULTI, SCORE, SPAN = TokenOutput(), SingleOutput(), MultiOutput(), ScoreOutput(), SpanOutput()

# Of several types with one head, the first is that of a config.json with several outputs and no problem_type.
OUTPUT_TYPES: Mapping[str, OutputType] = {each.name: each for each in (TOKENS, SINGLE, MULTI, SCORE, SPAN)}


def output_type_of_scheme(scheme: str) -> OutputType:
    """Return the output type for data of a `tasks.Dataset.scheme`: its name, or else a tag scheme (BIO, BIOUL, ...)."""
    return OUTPUT_TYPES.get(scheme, TOKENS)


def output_type_of_config(config: Mapping[str, Any]) -> OutputType:
    """Return the output type of the head that a config.json names; tokens for a masked language model or no head.

    Without a problem_type a single output is a score, as in transformers; published cross-encoders have none.
    """
    head, problem = head_of(config), config.get("problem_type")
    if problem is None and head == SCORE.head and output_width(config) == 1:
        return SCORE
    fitting = [each for each in OUTPUT_TYPES.values() if each.head == head]
    named = (each for each in fitting if each.problem_type == problem)
    return next(named, fitting[0] if fitting else TOKENS)


def _at_real_tokens(logits: Logits, batch: Batch) -> Logits:
    """Cut the padding away: (batch, length, outputs) -> (tokens, outputs)."""
    real: Logits = logits[batch[ATTENTION_MASK] == 1]
    return real.reshape(len(real), -1)


def _likeliest(vectors: Logits) -> NDArray[Any]:
    """Return the likeliest class of each vector; of a single logit (a discriminator's), whether it is positive."""
    return vectors.argmax(-1) if vectors.shape[-1] > 1 else (vectors > 0).astype(np.intp).ravel()


def _counts_of_ids(features: Sequence[Features], classes: int) -> NDArray[np.int64]:
    labels = np.concatenate([np.atleast_1d(feature[LABELS]) for feature in features])
    return np.bincount(labels[labels >= 0], minlength=classes)
