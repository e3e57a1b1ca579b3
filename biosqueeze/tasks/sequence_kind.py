"""What the kinds with one answer per text or pair share: by default that is one label, the likeliest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

from numpy.typing import NDArray

from biosqueeze.tasks import Formulation
from biosqueeze.tasks.encoding.sequences import (
    Floats,
    Labelled,
    SequenceWindow,
    class_ids,
    describe_classes,
    likeliest,
    rows_of,
    windows_of,
)
from biosqueeze.tasks.metrics.labels import score_classes

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Answering:
    """A kind that reads each example as one sequence; what it makes of truths and logits is for it to say."""

    HEAD: ClassVar[str] = "sequence-classification"
    METRIC: ClassVar[str] = "accuracy"
    SPLITS: ClassVar[tuple[str, ...]] = ("train", "dev", "test")
    USES: ClassVar[tuple[str, ...]] = ("column",)

    form: Formulation = field(default_factory=Formulation)

    def with_scheme(self, scheme: str) -> Self:  # noqa: ARG002 -- there is one
        """The same kind."""
        return self

    def encode(
        self,
        examples: Sequence[Any],
        labels: Sequence[str],
        tokenizer: "PreTrainedTokenizerBase",
        max_length: int,
    ) -> list[SequenceWindow]:
        """One window per example, what is too long cut (of a pair the longer text), with its truth.

        Raises:
            SqueezeError: the labels do not fit the examples, or max_length leaves no room for text.
        """
        return windows_of(examples, self.truths(examples, labels), tokenizer, max_length)

    def decode(
        self,
        windows: Sequence[SequenceWindow],
        logits: Sequence[Floats],
        examples: Sequence[Any],
        labels: Sequence[str],
    ) -> list[Any]:
        """The answer to each example, from the logits (outputs,) of its window."""
        return self.answers(rows_of(windows, logits, len(examples)), labels)

    def describe(
        self,
        windows: Sequence[SequenceWindow],
        logits: Sequence[Floats],
        examples: Sequence[Any],
        labels: Sequence[str],
    ) -> list[dict[str, Any]]:
        """The answer to each example, for people."""
        return self.told(rows_of(windows, logits, len(examples)), labels)

    def score(self, gold: Sequence[Any], predicted: Sequence[Any]) -> dict[str, float]:
        """See `score_classes`."""
        return score_classes(gold, predicted)

    def truths(self, examples: Sequence[Labelled], labels: Sequence[str]) -> Sequence[Mapping[str, NDArray[Any]]]:
        """What the features say of each example's truth: `labels` () is the id of its class."""
        return class_ids(examples, labels)

    def answers(self, rows: Floats, labels: Sequence[str]) -> list[Any]:
        """The likeliest label in each row of logits, (examples, labels)."""
        return likeliest(rows, labels)

    def told(self, rows: Floats, labels: Sequence[str]) -> list[dict[str, Any]]:
        """The likeliest label of each row, (examples, labels), and the probability of every label."""
        return describe_classes(rows, labels)
