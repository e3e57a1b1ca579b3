"""Similarity of two sentences as a number, such as BIOSSES's 0 (unrelated) to 4 (equivalent)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.feature_keys import TARGETS
from biosqueeze.data.output_types import SCORE
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.progress import note
from biosqueeze.tasks import Dataset
from biosqueeze.tasks.encoding.entities import FIRST, SECOND
from biosqueeze.tasks.encoding.sequences import Floats, Labelled, SequenceWindow, encode_sequences
from biosqueeze.tasks.metrics.labels import pearson, spearman
from biosqueeze.tasks.readers import rows as _rows
from biosqueeze.tasks.sequence_kind import Answering

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ROLES = _rows.Roles(
    {
        "first": _rows.FIRST,
        "second": _rows.SECOND,
        "label": ("score", "similarity", "label", "gold"),
        "id": _rows.ID,
    },
    frozenset({"id"}),
    {3: ("first", "second", "label"), 4: ("id", "first", "second", "label")},
)
LABELS = ("score",)


@dataclass(frozen=True)
class Kind(Answering):
    """A regression; scores keep the unit of the data, for no correlation depends on it."""

    METRIC: ClassVar[str] = "pearson"
    USES: ClassVar[tuple[str, ...]] = ("column", "representation")

    def __post_init__(self) -> None:
        """Refuse what is for relations.

        Raises:
            UsageError: the representation is that of an entity.
        """
        if self.form.representation not in ("cls", "cosine"):
            raise UsageError(
                f"--representation {self.form.representation} is of two entities; a similarity takes cls or cosine"
            )

    def read(self, source: str, splits: Sequence[str]) -> Dataset:
        """Read splits: records with two sentences and a score (BLURB's TSV of BIOSSES, or STS-B's names).

        Raises:
            SqueezeError: it cannot be read, a sentence or a score is missing, an id comes twice, or train or dev is
                the test split.
        """
        rows = _rows.read_rows(source, splits, ROLES, self.form.column)
        examples = {split: [_example(row) for row in items] for split, items in rows.items()}
        scores = [one.gold for items in examples.values() for one in items]
        note(f"{source}: scores from {min(scores):g} to {max(scores):g}; {_rows.counts(examples)}")
        return _rows.assemble(source, splits, examples, LABELS, SCORE.name)

    def encode(
        self,
        examples: Sequence[Labelled],
        labels: Sequence[str],
        tokenizer: "PreTrainedTokenizerBase",
        max_length: int,
    ) -> list[SequenceWindow]:
        """One window per pair, the longer sentence cut where both are too long; `targets` () float32 is the score.

        For the representation `cosine` each sentence has special tokens of its own and up to max_length tokens, and
        `entities` (length,) says whose a token is (FIRST or SECOND).

        Raises:
            SqueezeError: the model has not one output, or max_length leaves no room for text.
        """
        if self.form.representation == "cls":
            return super().encode(examples, labels, tokenizer, max_length)
        first, second = (
            encode_sequences([(e.texts[side],) for e in examples], tokenizer, max_length) for side in (0, 1)
        )
        sides = zip(first, second, self.truths(examples, labels), strict=True)
        return [SequenceWindow(number, {**_apart(*pair), **target}) for number, (*pair, target) in enumerate(sides)]

    def score(self, gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
        """Pearson's and Spearman's correlation; 0.0 where either side is constant, which leaves both undefined."""
        return {"pearson": pearson(gold, predicted), "spearman": spearman(gold, predicted), "support": len(gold)}

    def pose(self, record: Mapping[str, Any]) -> Labelled:
        """An unlabelled pair from a record with two texts, such as {"sentence1": ..., "sentence2": ...}.

        Raises:
            SqueezeError: one of them is missing.
        """
        row = _rows.unlabelled_row(record, ROLES, self.form.column)
        return Labelled(_rows.pair_of(row), None, _rows.id_of_row(row, "id"))

    def truths(self, examples: Sequence[Labelled], labels: Sequence[str]) -> list[dict[str, NDArray[Any]]]:
        """`targets` () float32 is the score."""
        _check_labels(labels)
        return [_target(example) for example in examples]

    def answers(self, rows: Floats, labels: Sequence[str]) -> list[float]:
        """The score of each pair, in the unit of the data."""
        _check_labels(labels)
        return [float(value) for value in rows[:, 0]]

    def told(self, rows: Floats, labels: Sequence[str]) -> list[dict[str, Any]]:
        """The similarity of each pair, in the unit of the data."""
        return [{"similarity": value} for value in self.answers(rows, labels)]


def _apart(first: Mapping[str, NDArray[Any]], second: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Two encoded sentences as one window: one after the other, and whose each token is."""
    ids = [first["input_ids"], second["input_ids"]]
    owners = [np.full(len(own), bit, dtype=np.int64) for own, bit in zip(ids, (FIRST, SECOND), strict=True)]
    return {"input_ids": np.concatenate(ids), "entities": np.concatenate(owners)}


def _check_labels(labels: Sequence[str]) -> None:
    if len(labels) != 1:
        raise SqueezeError(
            f"the model has {len(labels)} outputs ({', '.join(labels)}), where a similarity has one; "
            "fine-tune it with --task similarity"
        )


def _example(row: _rows.RoleValues) -> Labelled:
    return Labelled(_rows.pair_of(row), _score(row), _rows.id_of_row(row, "id"), row.where)


def _score(row: _rows.RoleValues) -> float:
    value = row.values["label"]
    try:
        score = math.nan if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        score = math.nan
    if not math.isfinite(score):
        raise SqueezeError(f"{row.where}: the score {value!r} is no number; mend it, or remove this record")
    return score


def _target(example: Labelled) -> dict[str, NDArray[Any]]:
    return {} if example.gold is None else {TARGETS: np.array(example.gold, dtype=np.float32)}
