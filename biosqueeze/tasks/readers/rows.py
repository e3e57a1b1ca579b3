"""Read records as labelled texts and pairs of texts, and check them before anything is trained."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from biosqueeze.data.records.columns import SHOWN, Columns, parse_column_options
from biosqueeze.data.records.record import DataRecord
from biosqueeze.data.records.sample import SourceSample
from biosqueeze.data.records.splits import shortened
from biosqueeze.data.records.tables import read_records
from biosqueeze.errors import SqueezeError
from biosqueeze.progress import note
from biosqueeze.tasks import Dataset
from biosqueeze.tasks.encoding.entities import Relation
from biosqueeze.tasks.encoding.sequences import TextExample
from biosqueeze.tasks.readers.answers import accepted_records
from biosqueeze.tasks.readers.split_overlap import check_disjoint, with_test_of
from biosqueeze.tasks.readers.unnamed_columns import check_unnamed_columns

_NO_LABELS = ("", "-1", "-1.0")  # of a hidden test split; the numbers are those of `datasets`
_LONGEST_NUMBER = 1000  # digits; Python converts no more than some thousands

Splits = Mapping[str, Sequence[TextExample]]


@dataclass(frozen=True)
class RoleValues:
    """The values of one record by role."""

    where: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Roles:
    """The roles that a task kind reads from a record."""

    known: Mapping[str, Sequence[str]]  # role -> names that its column may have, the most common first
    optional: frozenset[str] = frozenset()
    places: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # a table without a header: width -> roles

    def columns(self, column: Sequence[str]) -> Columns:
        """Return the columns of these roles, with the choices of --column."""
        return Columns(self.known, parse_column_options(column), self.optional)

    def without(self, role: str) -> "Roles":
        """Return the roles for records that need not have one of them."""
        return replace(self, optional=self.optional | {role})

    def rows(self, records: Sequence[DataRecord], columns: Columns) -> list[RoleValues]:
        """Return the values of the records by role.

        Raises:
            SqueezeError: there is no column for a role.
        """
        chosen = self.chosen(records, columns)
        return [
            RoleValues(record.where, {role: record.values[column] for role, column in chosen.items()})
            for record in records
        ]

    def chosen(self, records: Sequence[DataRecord], columns: Columns) -> dict[str, str]:
        """Return the column of each role."""
        return self._by_position(records, columns).of(records)

    def _by_position(self, records: Sequence[DataRecord], columns: Columns) -> Columns:
        """Return the columns of a table without a header, whose roles follow from their positions."""
        first = records[0]
        if first.has_names or columns.requested:
            return columns
        width = len(first.values)
        if width not in self.places:
            expected = " or ".join(f"{each} ({', '.join(roles)})" for each, roles in self.places.items())
            raise SqueezeError(
                f"{first.where}: {width} columns without a header, but {expected} were expected; "
                "add a line with column names at the top, or name the columns with --column ROLE=NUMBER"
            )
        check_unnamed_columns(records, self.places[width])
        known = {role: (str(position),) for position, role in enumerate(self.places[width], start=1)}
        return Columns({role: known.get(role, ()) for role in self.known}, {}, columns.optional)


def first_rows(sample: SourceSample, roles: Roles, column: Sequence[str]) -> list[RoleValues]:
    """Return the first records of a source by role; [] if it has no records.

    Raises:
        SqueezeError: there is no column for a role, or a record is malformed.
    """
    columns = roles.columns(column)
    records = sample.records(columns.header)
    return roles.rows(records, columns) if records else []


def read_rows(source: str, splits: Sequence[str], roles: Roles, column: Sequence[str]) -> dict[str, list[RoleValues]]:
    """Read splits of a data set of records, and a test split beside train; log the columns.

    Raises:
        SqueezeError: it cannot be read, or has no column for a role.
    """
    columns = roles.columns(column)
    records = read_records(source, with_test_of(source, splits), header=columns.header)
    return rows_by_role(source, without_hidden_test(source, records, splits, roles, column), roles, columns)


def without_hidden_test(
    source: str, records: Mapping[str, Sequence[DataRecord]], splits: Sequence[str], roles: Roles, column: Sequence[str]
) -> Mapping[str, Sequence[DataRecord]]:
    """Leave out a test split that was not requested and has no labels: published test sets have none, or -1 alone.

    Raises:
        SqueezeError: it lacks more than labels.
    """
    if "test" in splits or "test" not in records:
        return records
    try:
        rows = roles.rows(records["test"], roles.columns(column))
        labelled = any(_joined(row.values["label"], row.where) not in _NO_LABELS for row in rows)
    except SqueezeError:
        for record in records["test"][:1]:
            unlabelled_row(record.values, roles, column)
        labelled = False
    if labelled:
        return records
    note(f"{source}: test has no labels and is not compared with train and dev")
    return {split: items for split, items in records.items() if split != "test"}


def rows_by_role(
    source: str, records: Mapping[str, Sequence[DataRecord]], roles: Roles, columns: Columns
) -> dict[str, list[RoleValues]]:
    """Return the values of the accepted records of every split by role; log the columns.

    Raises:
        SqueezeError: there is no column for a role, or no record of a split was accepted.
    """
    labels = {split: roles.chosen(items, columns).get("label", "") for split, items in records.items()}
    accepted = {split: accepted_records(items, labels[split]) for split, items in records.items()}
    rows = {split: roles.rows(items, columns) for split, items in accepted.items()}
    note(f"{source}: {_describe_columns(roles, columns, records)}")
    return rows


def _describe_columns(roles: Roles, columns: Columns, records: Mapping[str, Sequence[DataRecord]]) -> str:
    """Return the column of each role for messages, once for all splits with the same columns."""
    splits: dict[str, list[str]] = {}
    for split, items in records.items():
        chosen = roles.chosen(items, columns)
        splits.setdefault(", ".join(f"{role} = {name}" for role, name in chosen.items()), []).append(split)
    if len(splits) == 1:
        return next(iter(splits))
    return "; ".join(f"{description} in {', '.join(names)}" for description, names in splits.items())


def unlabelled_row(record: Mapping[str, Any], roles: Roles, column: Sequence[str]) -> RoleValues:
    """Return the values of an unlabelled record by role.

    Raises:
        SqueezeError: it lacks what the task kind reads.
    """
    choices = [item for item in column if item.split("=")[0].strip() != "label"]
    unlabelled = roles.without("label")
    return unlabelled.rows([DataRecord("the record", record)], unlabelled.columns(choices))[0]


def id_of_row(row: RoleValues, *roles: str) -> str:
    """Return the id of a row, from the first of the roles that it has."""
    return next((str(row.values[role]) for role in roles if row.values.get(role) is not None), "")


def text_of(row: RoleValues, *roles: str) -> str:
    """Return the text of one role, or of several joined with a space; a list of texts is joined too.

    Raises:
        SqueezeError: there is no text.
    """
    texts = [_joined(row.values.get(role), row.where) for role in roles]
    text = " ".join(filter(None, texts))
    if not text:
        raise SqueezeError(
            f"{row.where}: no {' and no '.join(roles)}, but a text was expected; fill it in, or remove this record"
        )
    return text


def _joined(value: Any, where: str) -> str:
    """Return a text, or a list of texts as one.

    Raises:
        SqueezeError: it is an object, whose other fields may hold the label.
    """
    if value is None:
        return ""
    if isinstance(value, Mapping):
        raise SqueezeError(
            f"{where}: an object with {', '.join(map(str, value))}, and a text was expected; write the text itself"
        )
    if isinstance(value, list | tuple):
        return " ".join(filter(None, (_joined(item, where) for item in value)))
    return str(value).strip()


def unlabelled_pair(record: Mapping[str, Any], roles: Roles, column: Sequence[str]) -> TextExample:
    """Return a pair without a label from a record with two texts.

    Raises:
        SqueezeError: a text is missing.
    """
    row = unlabelled_row(record, roles, column)
    return TextExample(pair_of(row), None, id_of_row(row, "id"))


def pair_of(row: RoleValues) -> tuple[str, str]:
    """Return the two texts of a row.

    Raises:
        SqueezeError: one is missing.
    """
    return text_of(row, "first"), text_of(row, "second")


def label_of(row: RoleValues) -> str:
    """Return the one label of a row.

    Raises:
        SqueezeError: there is none.
    """
    label = _joined(row.values.get("label"), row.where)
    if not label:
        raise SqueezeError(f"{row.where}: no label; add one, or remove this record")
    return label


def ordered(labels: Iterable[str]) -> tuple[str, ...]:
    """Sort labels in the order of their ids: numbers by value, names by the alphabet."""
    names = set(labels)
    return tuple(sorted(names, key=lambda name: (int(name), name)) if all(map(_is_number, names)) else sorted(names))


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) < _LONGEST_NUMBER


def classes_of(examples: Splits) -> tuple[str, ...]:
    """Return the labels of train, or of all splits if train is not among them; each gold is one label.

    Raises:
        SqueezeError: train has one label only, or another split has a label that train lacks.
    """
    labels = ordered(example.gold for example in labelled_examples(examples))
    if "train" in examples and len(labels) < 2:
        raise SqueezeError(
            f"{examples['train'][0].where}: every example of train has the label {labels[0]!r}, so there is nothing to "
            "train; check the label column, or name another with --column label=NAME"
        )
    check_labels(examples, labels, lambda gold: (gold,))
    return labels


def labelled_examples(examples: Splits) -> list[TextExample]:
    """Return the examples that define the labels: those of train, or all if train is not among them."""
    if "train" in examples:
        return list(examples["train"])
    return [example for split in examples.values() for example in split]


def check_labels(
    examples: Mapping[str, Sequence[TextExample | Relation]],
    labels: Sequence[str],
    labels_in: Callable[[Any], Iterable[str]],
) -> None:
    """Check that every label is known.

    Args:
        examples: of each split.
        labels: those of train.
        labels_in: returns the labels in a gold label of these examples.

    Raises:
        SqueezeError: a label is unknown; the message has its place.
    """
    known = set(labels)
    for split in examples.values():
        for example in split:
            for label in labels_in(example.gold):
                if label not in known:
                    raise SqueezeError(
                        f"{example.where}: the label {label!r} is none of train's ({shortened(labels, SHOWN)}); "
                        "correct it, or add examples of it to train"
                    )


def assemble(source: str, splits: Sequence[str], examples: Splits, labels: tuple[str, ...], scheme: str) -> Dataset:
    """Check that ids are unique and the splits disjoint, and return the data set.

    Raises:
        SqueezeError: an id occurs twice in a split, or train or dev is the test split.
    """
    for items in examples.values():
        _check_ids(items)
    if "test" in examples:
        for split in ("train", "dev"):
            if split in examples:
                check_disjoint(split, _texts(examples[split]), _texts(examples["test"]), source)
    return Dataset({split: tuple(examples[split]) for split in splits}, labels, scheme)


def counts(examples: Splits) -> str:
    """Return the number of examples in each split, for messages."""
    return ", ".join(f"{split} {len(items):,}" for split, items in examples.items())


def _texts(examples: Sequence[TextExample]) -> list[str]:
    return ["\t".join(example.texts) for example in examples]


def _check_ids(examples: Sequence[TextExample]) -> None:
    first_places: dict[str, str] = {}
    for example in examples:
        if example.id and example.id in first_places:
            raise SqueezeError(
                f"{example.where}: the id {example.id!r} is already used at {first_places[example.id]}; "
                "remove one of the two examples, or change its id"
            )
        first_places[example.id] = example.where
