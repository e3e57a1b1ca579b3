"""Similarity of two sentences as a score, such as 0 (unrelated) to 4 (equivalent) in BIOSSES."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.feature_keys import TARGETS
from biosqueeze.data.output_types import SCORE
from biosqueeze.data.records.sample import SourceSample
from biosqueeze.data.tokenizer import Tokenizer
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.progress import note
from biosqueeze.tasks import Dataset
from biosqueeze.tasks.encoding.sequences import Floats, SequenceWindow, TextExample, encode_sequences, side_by_side
from biosqueeze.tasks.metrics.labels import pearson, spearman
from biosqueeze.tasks.readers import rows as _rows
from biosqueeze.tasks.readers.unnamed_columns import FIRST, ID, SECOND
from biosqueeze.tasks.sequence_kind import SequenceKind

ROLES = _rows.Roles(
    {
        "first": FIRST,
        "second": SECOND,
        "label": ("score", "similarity", "label", "gold"),
        "id": ID,
    },
    frozenset({"id"}),
    {3: ("first", "second", "label"), 4: ("id", "first", "second", "label")},
)
LABELS = ("score",)
_MOST_CLASSES = 5  # more different whole numbers than that are scores, not classes


@dataclass(frozen=True)
class Kind(SequenceKind):
    """A regression; scores keep the unit of the data, as correlations do not depend on it."""

    FORM: ClassVar[str] = "pairs of texts with scores"
    METRIC: ClassVar[str] = "pearson"
    USES: ClassVar[tuple[str, ...]] = ("column", "representation")

    def __post_init__(self) -> None:
        """Check the representation.

        Raises:
            UsageError: it is that of two entities.
        """
        if self.formulation.representation not in ("cls", "cosine"):
            raise UsageError(
                f"--representation {self.formulation.representation} needs two entities, and a similarity has none; "
                "give cls or cosine"
            )

    def sniff(self, sample: SourceSample) -> float:
        """Return 0.7 for pairs of texts with a score, and 0.45 if the scores are few whole numbers, as of classes."""
        rows = _rows.first_rows(sample, ROLES, self.formulation.column)
        scores = {_example(row).gold for row in rows}
        if not scores:
            return 0.0
        return 0.7 if len(scores) > _MOST_CLASSES or any(score != int(score) for score in scores) else 0.45

    def read(self, source: str, splits: Sequence[str]) -> Dataset:
        """Read splits: records with two sentences and a score (BLURB's TSV of BIOSSES, or STS-B's names).

        Raises:
            SqueezeError: the data cannot be read, a sentence or a score is missing, an id is not unique, or train or
                dev overlaps the test split.
        """
        rows = _rows.read_rows(source, splits, ROLES, self.formulation.column)
        examples = {split: [_example(row) for row in items] for split, items in rows.items()}
        scores = [example.gold for items in examples.values() for example in items]
        note(f"{source}: scores from {min(scores):g} to {max(scores):g}; {_rows.counts(examples)}")
        return _rows.assemble(source, splits, examples, LABELS, SCORE.name)

    def encode(
        self,
        examples: Sequence[TextExample],
        labels: Sequence[str],
        tokenizer: Tokenizer,
        max_length: int,
    ) -> list[SequenceWindow]:
        """Return one window per pair, the longer sentence truncated if necessary; `targets` () float32 is the score.

        For the representation `cosine` each sentence has its own special tokens and up to max_length tokens, and
        `entities` (length,) is FIRST or SECOND for the tokens of each.

        Raises:
            SqueezeError: the model does not have exactly one output, or max_length leaves no room for text.
        """
        if self.formulation.representation == "cls":
            return super().encode(examples, labels, tokenizer, max_length)
        first, second = (
            encode_sequences([(e.texts[side],) for e in examples], tokenizer, max_length) for side in (0, 1)
        )
        sides = zip(first, second, self.label_features(examples, labels), strict=True)
        return [
            SequenceWindow(number, {**side_by_side(*pair), **target}) for number, (*pair, target) in enumerate(sides)
        ]

    def score(self, gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
        """Return Pearson's and Spearman's correlation; 0.0 if either side is constant, where both are undefined."""
        return {"pearson": pearson(gold, predicted), "spearman": spearman(gold, predicted), "support": len(gold)}

    def example_from_record(self, record: Mapping[str, Any]) -> TextExample:
        """Return an unlabelled pair from a record with two texts, such as {"sentence1": ..., "sentence2": ...}.

        Raises:
            SqueezeError: a text is missing.
        """
        return _rows.unlabelled_pair(record, ROLES, self.formulation.column)

    def label_features(self, examples: Sequence[TextExample], labels: Sequence[str]) -> list[dict[str, NDArray[Any]]]:
        """Return the label features of each example: `targets` () float32 is the score."""
        _check_labels(labels)
        return [_target(example) for example in examples]

    def predictions(self, rows: Floats, labels: Sequence[str]) -> list[float]:
        """Return the score of each pair, in the unit of the data."""
        _check_labels(labels)
        return [float(value) for value in rows[:, 0]]

    def descriptions(self, rows: Floats, labels: Sequence[str]) -> list[dict[str, Any]]:
        """Return the similarity of each pair, in the unit of the data."""
        return [{"similarity": value} for value in self.predictions(rows, labels)]


def _check_labels(labels: Sequence[str]) -> None:
    if len(labels) != 1:
        raise SqueezeError(
            f"the model has {len(labels)} outputs ({', '.join(labels)}), and a similarity has one; "
            "fine-tune it with --task similarity"
        )


def _example(row: _rows.RoleValues) -> TextExample:
    return TextExample(_rows.pair_of(row), _score(row), _rows.id_of_row(row, "id"), row.where)


def _score(row: _rows.RoleValues) -> float:
    value = row.values["label"]
    if isinstance(value, str) and value.count(",") == 1 and "." not in value:
        value = value.replace(",", ".")  # a decimal comma
    try:
        score = math.nan if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        score = math.nan
    if not math.isfinite(score):
        raise SqueezeError(f"{row.where}: the score {value!r} is not a number; correct it, or remove this record")
    return score


def _target(example: TextExample) -> dict[str, NDArray[Any]]:
    return {} if example.gold is None else {TARGETS: np.array(example.gold, dtype=np.float32)}
