"""Task kinds, one file each: `tasks/ner.py` is the kind called ner. A new one is a file whose `Kind` fits `Task`.

A stage reads a `Dataset`, encodes its examples into `Window`s (one or more for each example), runs a model
over the windows' features, decodes the logits into one prediction per example, and scores those.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, cast

from biosqueeze import registry
from biosqueeze.tasks.formulation import Formulation, ReadingOptions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerBase

    from biosqueeze.data.output_types import OutputType

__all__ = ["Dataset", "Example", "Formulation", "ReadingOptions", "Task", "Window", "bound", "open_task"]


class Example(Protocol):
    """One item of a data set; each kind adds what it reads (words, a pair of sentences, a question)."""

    @property
    def gold(self) -> Any:
        """The true answer, in the form that the kind's `decode` gives."""


class Window(Protocol):
    """One sequence as a model sees it."""

    @property
    def example(self) -> int:
        """Index of the example that it came from."""

    @property
    def features(self) -> "Mapping[str, NDArray[Any]]":
        """Arrays for `data.collate.pad`: input_ids, labels (see `data.output_types`), and what else the kind needs."""


@dataclass(frozen=True)
class Dataset:
    """The splits of a labelled data set."""

    splits: Mapping[str, tuple[Any, ...]]  # of the kind's Example
    labels: tuple[str, ...]  # by output id; ("score",) for a regression, () for spans
    scheme: str  # how the gold is written: a tag scheme (BIO, IO, BIOUL), or the name of an output type

    @property
    def output_type(self) -> "OutputType":
        """The output type of a model of this data set."""
        from biosqueeze.data.output_types import output_type_of_scheme  # numpy, which --help need not import

        return output_type_of_scheme(self.scheme)


class Task(Protocol):
    """What the `Kind` of a module in this folder offers."""

    HEAD: ClassVar[str]  # the head that models.load knows, such as "token-classification"
    METRIC: ClassVar[str]  # the key of `score` by which the best checkpoint is chosen; higher is better
    SPLITS: ClassVar[tuple[str, ...]]  # the names of splits that `read` knows
    USES: ClassVar[tuple[str, ...]]  # the fields of a Formulation that the kind reads

    @property
    def form(self) -> Formulation:
        """How the task is read and posed."""

    def with_scheme(self, scheme: str) -> Self:
        """The kind for data of this `Dataset.scheme`, where that decides how logits are decoded."""

    def read(self, source: str, splits: Sequence[str]) -> Dataset:
        """Read some splits of a data set; the labels are those of the train split.

        Raises:
            SqueezeError: it cannot be read; the message names file and line.
        """

    def encode(
        self,
        examples: Sequence[Any],
        labels: Sequence[str],
        tokenizer: "PreTrainedTokenizerBase",
        max_length: int,
    ) -> Sequence[Window]:
        """Turn examples into what a model reads."""

    def decode(
        self,
        windows: Sequence[Any],
        logits: "Sequence[NDArray[np.float32]]",
        examples: Sequence[Any],
        labels: Sequence[str],
    ) -> list[Any]:
        """One prediction per example, from the logits of every window: (length, outputs) or (outputs,) each."""

    def score(self, gold: Sequence[Any], predicted: Sequence[Any]) -> dict[str, float]:
        """The metrics of the kind, METRIC among them; a count is an int."""

    def pose(self, record: Mapping[str, Any]) -> Any:
        """An unlabelled example from a record that a user gives.

        Raises:
            SqueezeError: the record lacks what the kind reads.
        """

    def describe(
        self,
        windows: Sequence[Any],
        logits: "Sequence[NDArray[np.float32]]",
        examples: Sequence[Any],
        labels: Sequence[str],
    ) -> list[dict[str, Any]]:
        """One prediction per example for people: scores in 0..1, character offsets where there is text."""


class Chained(Task, Protocol):
    """A kind whose tags may be decoded with scores that a model learned beside its logits."""

    def with_parameters(self, parameters: "Mapping[str, NDArray[Any]]") -> Self:
        """The kind that decodes with them: a CRF's transitions (labels, labels), start and end (labels,)."""


def bound(task: Task, parameters: "Mapping[str, NDArray[Any]]") -> Task:
    """The kind for a model with these parameters of decoding; most models have none."""
    return cast(Chained, task).with_parameters(parameters) if parameters else task


def open_task(name: str, form: Formulation | None = None, scheme: str = "") -> Task:
    """A task kind, ready to read data.

    Raises:
        UsageError: there is no such kind, or something is set that it does not read.
    """
    kind = registry.load("tasks", name).Kind
    form = form or Formulation()
    form.refuse_unused(name, kind.USES)
    task: Task = kind(form)
    return task.with_scheme(scheme) if scheme else task
