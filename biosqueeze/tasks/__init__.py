"""Task kinds, one file each: `tasks/ner.py` is the kind called ner. A new kind is a file that fits `Task`.

A stage reads a `Dataset`, encodes its examples into `Window`s (one or more for each example), runs a model
over the windows' features, decodes the logits into one prediction per example, and scores those.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


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
    def features(self) -> Mapping[str, NDArray[np.int64]]:
        """Arrays for `data.collate.pad`: input_ids, labels, and what else the kind needs."""


@dataclass(frozen=True)
class Dataset:
    """The splits of a labelled data set."""

    splits: Mapping[str, tuple[Any, ...]]  # of the kind's Example
    labels: tuple[str, ...]  # by id
    scheme: str  # how the labels are written: BIO, IO, ...


class Task(Protocol):
    """What a module in this folder offers."""

    HEAD: str  # the head that models.load knows, such as "token-classification"
    METRIC: str  # the key of `score` by which the best checkpoint is chosen; higher is better
    SPLITS: tuple[str, ...]  # the names of splits that `read` knows

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
        logits: Sequence[NDArray[np.float32]],
        examples: Sequence[Any],
        labels: Sequence[str],
    ) -> list[Any]:
        """One prediction per example, from the logits of every window, (length, labels) or (labels,) each."""

    def score(self, gold: Sequence[Any], predicted: Sequence[Any]) -> dict[str, float]:
        """The metrics of the kind, METRIC among them; a count is an int."""
