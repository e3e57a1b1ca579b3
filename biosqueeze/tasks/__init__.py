"""Task kinds, one file each: `tasks/ner.py` is the kind called ner. A new kind is a file whose `Kind` fits `Task`.

A stage reads a `Dataset`, encodes its examples into `Window`s (one or more per example), runs a model over the windows'
features, decodes the logits into one prediction per example, and scores the predictions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, cast

from biosqueeze import registry
from biosqueeze.tasks.formulation import Formulation, ReadingOptions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from biosqueeze.data.output_types import OutputType
    from biosqueeze.data.records.sample import SourceSample
    from biosqueeze.data.tokenizer import Tokenizer
    from biosqueeze.tasks.encoding.entities import PairKind

__all__ = [
    "Dataset",
    "Example",
    "Formulation",
    "ReadingOptions",
    "Task",
    "Window",
    "open_task",
    "with_columns",
    "with_decoding_parameters",
    "with_pairs",
]


class Example(Protocol):
    """An item of a data set; each kind adds its inputs (words, a pair of sentences, a question)."""

    @property
    def gold(self) -> Any:
        """The gold label, in the form in which the kind's `decode` returns predictions."""


class Window(Protocol):
    """One input sequence of the model."""

    @property
    def example(self) -> int:
        """Index of the example that it was encoded from."""

    @property
    def features(self) -> "Mapping[str, NDArray[Any]]":
        """Arrays for `data.collate.pad`: input_ids, labels (see `data.output_types`), and those of the kind."""


@dataclass(frozen=True)
class Dataset:
    """The splits of a labelled data set."""

    splits: Mapping[str, tuple[Any, ...]]  # of the kind's Example
    labels: tuple[str, ...]  # by output id; ("score",) for a regression, () for spans
    scheme: str  # how the gold labels are written: a tag scheme (BIO, IO, BIOUL), or the name of an output type
    pairs: "tuple[PairKind, ...]" = ()  # kinds of pairs that may be related; () where single pairs are given

    @property
    def output_type(self) -> "OutputType":
        """The output type of a model for this data set."""
        from biosqueeze.data.output_types import output_type_of_scheme  # numpy, which --help need not import

        return output_type_of_scheme(self.scheme)


class Task(Protocol):
    """The interface of the `Kind` in each module of this folder."""

    HEAD: ClassVar[str]  # the head that models.load knows, such as "token-classification"
    FORM: ClassVar[str]  # what a data set of the kind holds, in a few words
    METRIC: ClassVar[str]  # the key of `score` that selects the best checkpoint; higher is better
    USES: ClassVar[tuple[str, ...]]  # the fields of a Formulation that the kind uses

    @property
    def formulation(self) -> Formulation:
        """How the data are read and encoded."""

    def with_scheme(self, scheme: str) -> Self:
        """Return the kind for data of this `Dataset.scheme`, on which decoding may depend."""

    def sniff(self, sample: "SourceSample") -> float:
        """Return how likely a source is for this kind, from its first records: 0.0 for no, up to 1.0.

        Kinds that read the same data differ in confidence: the more specific a format, the higher. Confidence below
        0.5 marks data that the kind reads but was not made for, such as entities of any type for pico.

        Raises:
            SqueezeError: the kind does not read these records.
        """

    def splits(self, source: str) -> tuple[str, ...]:
        """Return which of train, dev and test a source has, without reading it.

        Raises:
            SqueezeError: there is no such source.
        """

    def read(self, source: str, splits: Sequence[str]) -> Dataset:
        """Read some splits of a data set; its labels are those of the train split.

        Raises:
            SqueezeError: the data cannot be read; the message names file and line.
        """

    def encode(
        self,
        examples: Sequence[Any],
        labels: Sequence[str],
        tokenizer: "Tokenizer",
        max_length: int,
    ) -> Sequence[Window]:
        """Encode examples as input sequences of at most max_length tokens."""

    def decode(
        self,
        windows: Sequence[Any],
        logits: "Sequence[NDArray[np.float32]]",
        examples: Sequence[Any],
        labels: Sequence[str],
    ) -> list[Any]:
        """Return one prediction per example, from the logits of every window: (length, outputs) or (outputs,) each."""

    def score(self, gold: Sequence[Any], predicted: Sequence[Any]) -> dict[str, float]:
        """Return the metrics of the kind, METRIC among them; a count is an int."""

    def example_from_record(self, record: Mapping[str, Any]) -> Any:
        """Return an unlabelled example from a record of a user's input.

        Raises:
            SqueezeError: the record lacks a field that the kind needs.
        """

    def describe(
        self,
        windows: Sequence[Any],
        logits: "Sequence[NDArray[np.float32]]",
        examples: Sequence[Any],
        labels: Sequence[str],
    ) -> list[dict[str, Any]]:
        """Return one prediction per example as JSON: scores in 0..1, and character offsets for spans of text."""


class TaskWithDecodingParameters(Task, Protocol):
    """A kind whose tags may be decoded with trained parameters of the head, beside its logits."""

    def with_decoding_parameters(self, parameters: "Mapping[str, NDArray[Any]]") -> Self:
        """Return the kind that decodes with a CRF's transitions (labels, labels), start and end (labels,)."""


def with_decoding_parameters(task: Task, parameters: "Mapping[str, NDArray[Any]]") -> Task:
    """Return the task that decodes with the parameters of a head; the same task if there are none."""
    return cast(TaskWithDecodingParameters, task).with_decoding_parameters(parameters) if parameters else task


def with_columns(task: Task, column: tuple[str, ...]) -> Task:
    """Return the task that reads these columns, ROLE=COLUMN each, in place of its own."""
    return replace(task, formulation=replace(task.formulation, column=column))  # type: ignore[type-var] # every Kind is a dataclass


def with_pairs(task: Task, pairs: "tuple[PairKind, ...]") -> Task:
    """Return the task that pairs the entities of documents so; the same task if there are none."""
    return replace(task, pairs=pairs) if pairs else task  # type: ignore[type-var] # every Kind is a dataclass


def open_task(name: str, formulation: Formulation | None = None, scheme: str = "") -> Task:
    """Return a task kind by name, ready to read data.

    Raises:
        UsageError: there is no such kind, or the formulation sets an option that the kind does not use.
    """
    kind = registry.load("tasks", name).Kind
    formulation = formulation or Formulation()
    formulation.check_unused_options(name, kind.USES)
    task: Task = kind(formulation)
    return task.with_scheme(scheme) if scheme else task
