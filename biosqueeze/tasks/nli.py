"""Classification of text pairs: inference (MedNLI) and yes-or-no questions about a text (PubMedQA, BioASQ)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from biosqueeze.data.output_types import SINGLE
from biosqueeze.data.records.hub import is_hub
from biosqueeze.data.records.sample import SourceSample
from biosqueeze.data.records.splits import SPLITS, check_splits
from biosqueeze.data.records.tables import read_file
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.progress import note
from biosqueeze.tasks import Dataset
from biosqueeze.tasks.encoding.sequences import TextExample
from biosqueeze.tasks.readers import pubmedqa as _pubmedqa
from biosqueeze.tasks.readers import rows as _rows
from biosqueeze.tasks.readers import yes_no as _yesno
from biosqueeze.tasks.readers.split_overlap import with_test
from biosqueeze.tasks.readers.unnamed_columns import FIRST, ID, SECOND, are_classes
from biosqueeze.tasks.sequence_kind import SequenceKind

ROLES = _rows.Roles(
    {
        "first": FIRST,
        "second": SECOND,
        "label": ("gold_label", "label", "final_decision", "exact_answer", "answer", "class"),
        "id": ID,
    },
    frozenset({"id"}),
    {3: ("first", "second", "label"), 4: ("id", "first", "second", "label")},
)
MEDNLI = "mli_{}_v1.jsonl"
_UNDECIDED = "-"


class Kind(SequenceKind):
    """One label for each pair."""

    FORM: ClassVar[str] = "pairs of texts with labels"

    def sniff(self, sample: SourceSample) -> float:
        """Return 0.5 for the files of MedNLI, PubMedQA and BioASQ, and for pairs of texts with a label."""
        directory = sample.directory
        if directory is not None and (_pubmedqa.is_here(directory) or _yesno.has_questions(directory, sample)):
            return 0.0 if self.formulation.column else 0.5
        if directory is not None and _is_mednli(directory):
            return 0.5
        rows = _rows.first_rows(sample, ROLES, self.formulation.column)
        return 0.5 if are_classes([_example(row).gold for row in rows]) else 0.0

    def splits(self, source: str) -> tuple[str, ...]:
        """Return the splits that a source has; PubMedQA's files have all of them, under other names."""
        if not is_hub(source) and _pubmedqa.is_here(Path(source).expanduser()):
            return SPLITS
        return super().splits(source)

    def read(self, source: str, splits: Sequence[str]) -> Dataset:
        """Read splits: MedNLI's, PubMedQA's or BioASQ's own files, or records with two texts and a label.

        Raises:
            SqueezeError: the data cannot be read, a text or a label is missing, an id is not unique, a split has a
                label that train lacks, or train or dev overlaps the test split.
            UsageError: --column is given for files without columns.
        """
        examples = self._examples(source, splits)
        labels = _rows.classes_of(examples)
        note(f"{source}: {len(labels)} labels ({', '.join(labels)}); {_rows.counts(examples)}")
        return _rows.assemble(source, splits, examples, labels, SINGLE.name)

    def _examples(self, source: str, splits: Sequence[str]) -> dict[str, list[TextExample]]:
        check_splits(splits)
        directory = Path(source).expanduser()
        if not is_hub(source) and _pubmedqa.is_here(directory):
            self._check_no_columns(_pubmedqa.NAME)
            return _pubmedqa.read(directory, splits)
        if not is_hub(source) and _yesno.is_here(directory):
            self._check_no_columns(_yesno.NAME)
            return _yesno.read(directory, splits)
        if _is_mednli(directory):
            rows = _mednli_rows(directory, splits, self.formulation.column)
        else:
            rows = _rows.read_rows(source, splits, ROLES, self.formulation.column)
        return _decided(source, {split: [_example(row) for row in items] for split, items in rows.items()})

    def _check_no_columns(self, name: str) -> None:
        if self.formulation.column:
            raise UsageError(f"--column {self.formulation.column[0]} is not used for {name}; leave it out")

    def example_from_record(self, record: Mapping[str, Any]) -> TextExample:
        """Return an unlabelled pair from a record with two texts, such as {"question": ..., "context": ...}.

        Raises:
            SqueezeError: a text is missing.
        """
        return _rows.unlabelled_pair(record, ROLES, self.formulation.column)


def _is_mednli(directory: Path) -> bool:
    return any((directory / MEDNLI.format(split)).is_file() for split in ("train", "test"))


def _example(row: _rows.RoleValues) -> TextExample:
    return TextExample(_rows.pair_of(row), _rows.label_of(row), _rows.id_of_row(row, "id"), row.where)


def _decided(source: str, examples: dict[str, list[TextExample]]) -> dict[str, list[TextExample]]:
    """Leave out the pairs on which the annotators of SNLI did not agree."""
    decided = {split: [each for each in items if each.gold != _UNDECIDED] for split, items in examples.items()}
    count = sum(map(len, examples.values())) - sum(map(len, decided.values()))
    if count:
        note(f"{source}: {count:,} pairs without a majority for one label ({_UNDECIDED}) are left out")
    return decided


def _mednli_rows(directory: Path, splits: Sequence[str], column: Sequence[str]) -> dict[str, list[_rows.RoleValues]]:
    """Read MedNLI in PhysioNet's files: mli_train_v1.jsonl, mli_dev_v1.jsonl, mli_test_v1.jsonl."""
    files = {split: directory / MEDNLI.format(split) for split in SPLITS}
    read = with_test(splits, [split for split, path in files.items() if path.is_file()])
    lacking = next((split for split in read if not files[split].is_file()), None)
    if lacking:
        raise SqueezeError(f"{directory} has no {lacking} split: looked for {files[lacking].name}; add it")
    columns = ROLES.columns(column)
    records = {split: read_file(files[split], header=columns.header) for split in read}
    return _rows.rows_by_role(str(directory), records, ROLES, columns)
