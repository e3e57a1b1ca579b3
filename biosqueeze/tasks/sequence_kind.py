"""The base of the kinds with one prediction per text or pair of texts; by default that is the likeliest label."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from biosqueeze.data.records.sample import available_splits
from biosqueeze.data.tokenizer import Tokenizer
from biosqueeze.tasks import Formulation
from biosqueeze.tasks.encoding.sequences import (
    Floats,
    SequenceWindow,
    TextExample,
    class_features,
    describe_classes,
    likeliest_labels,
    logits_by_example,
    sequence_windows,
)
from biosqueeze.tasks.metrics.labels import score_classes


@dataclass(frozen=True)
class SequenceKind:
    """A kind that encodes each example as one sequence; subclasses override label features and predictions."""

    HEAD: ClassVar[str] = "sequence-classification"
    METRIC: ClassVar[str] = "accuracy"
    USES: ClassVar[tuple[str, ...]] = ("column",)

    formulation: Formulation = field(default_factory=Formulation)

    def with_scheme(self, scheme: str) -> Self:  # noqa: ARG002 -- there is one
        """Return the kind itself."""
        return self

    def splits(self, source: str) -> tuple[str, ...]:
        """Return the splits that a source has."""
        return available_splits(source)

    def encode(
        self,
        examples: Sequence[Any],
        labels: Sequence[str],
        tokenizer: Tokenizer,
        max_length: int,
    ) -> list[SequenceWindow]:
        """Return one window per example with its label features; long texts are truncated (of a pair the longer).

        Raises:
            SqueezeError: an example has an unknown label, or max_length leaves no room for text.
        """
        return sequence_windows(examples, self.label_features(examples, labels), tokenizer, max_length)

    def decode(
        self,
        windows: Sequence[SequenceWindow],
        logits: Sequence[Floats],
        examples: Sequence[Any],
        labels: Sequence[str],
    ) -> list[Any]:
        """Return the prediction for each example, from the logits (outputs,) of its window."""
        return self.predictions(logits_by_example(windows, logits, len(examples)), labels)

    def describe(
        self,
        windows: Sequence[SequenceWindow],
        logits: Sequence[Floats],
        examples: Sequence[Any],
        labels: Sequence[str],
    ) -> list[dict[str, Any]]:
        """Return the prediction for each example as JSON."""
        return self.descriptions(logits_by_example(windows, logits, len(examples)), labels)

    def score(self, gold: Sequence[Any], predicted: Sequence[Any]) -> dict[str, float]:
        """Return the scores of single labels: see `score_classes`."""
        return score_classes(gold, predicted)

    def label_features(
        self, examples: Sequence[TextExample], labels: Sequence[str]
    ) -> Sequence[Mapping[str, NDArray[Any]]]:
        """Return the label features of each example: `labels` () is the id of its class."""
        return class_features(examples, labels)

    def predictions(self, rows: Floats, labels: Sequence[str]) -> list[Any]:
        """Return the likeliest label of each row of logits, (examples, labels)."""
        return likeliest_labels(rows, labels)

    def descriptions(self, rows: Floats, labels: Sequence[str]) -> list[dict[str, Any]]:
        """Return the likeliest label of each row of logits, (examples, labels), and the probability of every label."""
        return describe_classes(rows, labels)
