"""Classification of pairs: inference (MedNLI) and yes-or-no questions about a text (PubMedQA, BioASQ)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from biosqueeze.data.hub import is_hub
from biosqueeze.data.tables import read_file
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.progress import note
from biosqueeze.tasks import Dataset, Formulation, _pubmedqa, _rows, _yesno
from biosqueeze.tasks._metrics import score_classes
from biosqueeze.tasks._sequences import (
    Floats,
    Labelled,
    SequenceWindow,
    class_ids,
    describe_classes,
    likeliest,
    rows_of,
    windows_of,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ROLES = _rows.Roles(
    {
        "first": _rows.FIRST,
        "second": _rows.SECOND,
        "label": ("gold_label", "label", "final_decision", "exact_answer", "answer", "class"),
        "id": _rows.ID,
    },
    frozenset({"id"}),
    {3: ("first", "second", "label"), 4: ("id", "first", "second", "label")},
)
MEDNLI = "mli_{}_v1.jsonl"


@dataclass(frozen=True)
class Kind:
    """One label for each pair."""

    HEAD: ClassVar[str] = "sequence-classification"
    METRIC: ClassVar[str] = "accuracy"
    SPLITS: ClassVar[tuple[str, ...]] = ("train", "dev", "test")
    USES: ClassVar[tuple[str, ...]] = ("column",)

    form: Formulation = field(default_factory=Formulation)

    def with_scheme(self, scheme: str) -> Self:  # noqa: ARG002 -- there is one
        """The same kind."""
        return self

    def read(self, source: str, splits: Sequence[str]) -> Dataset:
        """Read splits: MedNLI's, PubMedQA's or BioASQ's own files, or records with two texts and a label.

        Raises:
            SqueezeError: it cannot be read, a text or a label is missing, an id comes twice, a split has a label that
                train lacks, or train or dev is the test split.
            UsageError: columns are named for files that have none.
        """
        examples = self._examples(source, splits)
        labels = _rows.classes_of(examples)
        note(f"{source}: {len(labels)} labels ({', '.join(labels)}); {_rows.counts(examples)}")
        return _rows.assemble(source, splits, examples, labels, "single")

    def _examples(self, source: str, splits: Sequence[str]) -> dict[str, list[Labelled]]:
        directory = Path(source).expanduser()
        if not is_hub(source) and _pubmedqa.is_here(directory):
            self._refuse_columns(_pubmedqa.NAME)
            return _pubmedqa.read(directory, splits)
        if not is_hub(source) and _yesno.is_here(directory):
            self._refuse_columns(_yesno.NAME)
            return _yesno.read(directory, splits)
        if (directory / MEDNLI.format("train")).is_file() or (directory / MEDNLI.format("test")).is_file():
            rows = _mednli_rows(directory, splits, self.form.column)
        else:
            rows = _rows.read_rows(source, _rows.splits_to_read(source, splits), ROLES, self.form.column)
        return {split: [_example(row) for row in items] for split, items in rows.items()}

    def _refuse_columns(self, name: str) -> None:
        if self.form.column:
            raise UsageError(f"--column {self.form.column[0]} means nothing to {name}; leave it out")

    def encode(
        self,
        examples: Sequence[Labelled],
        labels: Sequence[str],
        tokenizer: "PreTrainedTokenizerBase",
        max_length: int,
    ) -> list[SequenceWindow]:
        """One window per pair, the longer text cut where both are too long; `labels` () is the id of the class.

        Raises:
            SqueezeError: an example has a label that is none of these, or max_length leaves no room for text.
        """
        return windows_of(examples, class_ids(examples, labels), tokenizer, max_length)

    def decode(
        self,
        windows: Sequence[SequenceWindow],
        logits: Sequence[Floats],
        examples: Sequence[Labelled],
        labels: Sequence[str],
    ) -> list[str]:
        """The likeliest label of each pair."""
        return likeliest(rows_of(windows, logits, len(examples)), labels)

    def score(self, gold: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
        """See `score_classes`."""
        return score_classes(gold, predicted)

    def pose(self, record: Mapping[str, Any]) -> Labelled:
        """An unlabelled pair from a record with two texts, such as {"question": ..., "context": ...}.

        Raises:
            SqueezeError: one of them is missing.
        """
        row = _rows.pose_row(record, ROLES, self.form.column)
        return Labelled(_rows.pair_of(row), None, _rows.id_of_row(row, "id"))

    def describe(
        self,
        windows: Sequence[SequenceWindow],
        logits: Sequence[Floats],
        examples: Sequence[Labelled],
        labels: Sequence[str],
    ) -> list[dict[str, Any]]:
        """The likeliest label and the probability of each."""
        return describe_classes(rows_of(windows, logits, len(examples)), labels)


def _example(row: _rows.Row) -> Labelled:
    return Labelled(_rows.pair_of(row), _rows.label_of(row), _rows.id_of_row(row, "id"), row.where)


def _mednli_rows(directory: Path, splits: Sequence[str], column: Sequence[str]) -> dict[str, list[_rows.Row]]:
    """MedNLI as PhysioNet gives it: mli_train_v1.jsonl, mli_dev_v1.jsonl, mli_test_v1.jsonl."""
    files = {split: directory / MEDNLI.format(split) for split in Kind.SPLITS}
    looked = _rows.to_read(splits, [split for split, path in files.items() if path.is_file()])
    lacking = next((split for split in looked if not files[split].is_file()), None)
    if lacking:
        raise SqueezeError(f"{directory} has no {lacking} split: looked for {files[lacking].name}; add it")
    columns = ROLES.columns(column)
    records = {split: read_file(files[split], header=columns.header) for split in looked}
    return _rows.rows_by_role(str(directory), records, ROLES, columns)
