"""From the records of a data set to labelled texts and pairs, and what must hold of them before anything is trained."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from biosqueeze.data.tables import Columns, DataRecord, parse_column_options, read_records, splits_of
from biosqueeze.errors import SqueezeError
from biosqueeze.progress import note
from biosqueeze.tasks import Dataset
from biosqueeze.tasks.encoding.sequences import TextExample
from biosqueeze.tasks.readers.split_overlap import check_disjoint

FIRST = ("sentence1", "premise", "question", "text_a", "text1", "sent1", "query")
SECOND = ("sentence2", "hypothesis", "context", "contexts", "text_b", "text2", "sent2", "passage")
ID = ("id", "pair_id", "pairid", "guid", "idx")

Splits = Mapping[str, Sequence[TextExample]]


@dataclass(frozen=True)
class RoleValues:
    """The values of one record by their roles."""

    where: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Roles:
    """What a kind reads from a record."""

    known: Mapping[str, Sequence[str]]  # role -> names that its column may have, the likeliest first
    optional: frozenset[str] = frozenset()
    places: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # a table without a header: width -> roles

    def columns(self, column: Sequence[str]) -> Columns:
        """These roles, where --column says nothing else."""
        return Columns(self.known, parse_column_options(column), self.optional)

    def without(self, role: str) -> "Roles":
        """The same for records that need not have the role."""
        return replace(self, optional=self.optional | {role})

    def rows(self, records: Sequence[DataRecord], columns: Columns) -> list[RoleValues]:
        """Values by role.

        Raises:
            SqueezeError: there is no column for a role.
        """
        chosen = self.chosen(records, columns)
        return [RoleValues(record.where, {role: record.values[c] for role, c in chosen.items()}) for record in records]

    def chosen(self, records: Sequence[DataRecord], columns: Columns) -> dict[str, str]:
        """The column of each role."""
        return self._placed(records[0], columns).of(records)

    def _placed(self, first: DataRecord, columns: Columns) -> Columns:
        """Where a table has no header, roles go by the places of its columns."""
        names = list(first.values)
        if names != [str(place) for place in range(1, len(names) + 1)] or columns.requested:
            return columns
        if len(names) not in self.places:
            widths = " or ".join(f"{width} ({', '.join(roles)})" for width, roles in self.places.items())
            raise SqueezeError(
                f"{first.where}: {len(names)} columns without a header, where {widths} were expected; "
                "put a line with names above, or say which is which with --column ROLE=NUMBER"
            )
        known = {role: (str(place),) for place, role in enumerate(self.places[len(names)], start=1)}
        return Columns({role: known.get(role, ()) for role in self.known}, {}, columns.optional)


def read_rows(source: str, splits: Sequence[str], roles: Roles, column: Sequence[str]) -> dict[str, list[RoleValues]]:
    """Read splits of a data set of records, and a test split beside train; say which column was taken for what.

    Raises:
        SqueezeError: it cannot be read, or has no column for a role.
    """
    columns = roles.columns(column)
    records = read_records(source, splits_to_read(source, splits), header=columns.header)
    return rows_by_role(source, without_hidden_test(source, records, splits, roles, column), roles, columns)


def without_hidden_test(
    source: str, records: Mapping[str, Sequence[DataRecord]], splits: Sequence[str], roles: Roles, column: Sequence[str]
) -> Mapping[str, Sequence[DataRecord]]:
    """The records without a test split that nobody asked for and whose labels are kept secret.

    Raises:
        SqueezeError: it lacks more than labels.
    """
    if "test" in splits or "test" not in records:
        return records
    try:
        labelled = any(_joined(row.values["label"]) for row in roles.rows(records["test"], roles.columns(column)))
    except SqueezeError:
        for record in records["test"][:1]:
            unlabelled_row(record.values, roles, column)
        labelled = False
    if labelled:
        return records
    note(f"{source}: test has no labels, so whether it is another split than train and dev is not looked at")
    return {split: items for split, items in records.items() if split != "test"}


def rows_by_role(
    source: str, records: Mapping[str, Sequence[DataRecord]], roles: Roles, columns: Columns
) -> dict[str, list[RoleValues]]:
    """The values of every split's records by role; says which column was taken for what.

    Raises:
        SqueezeError: there is no column for a role.
    """
    rows = {split: roles.rows(items, columns) for split, items in records.items()}
    note(f"{source}: {_said(roles, columns, records)}")
    return rows


def _said(roles: Roles, columns: Columns, records: Mapping[str, Sequence[DataRecord]]) -> str:
    """Which column is read as what, once for all splits that agree."""
    said: dict[str, list[str]] = {}
    for split, items in records.items():
        chosen = roles.chosen(items, columns)
        said.setdefault(", ".join(f"{role} = {name}" for role, name in chosen.items()), []).append(split)
    if len(said) == 1:
        return next(iter(said))
    return "; ".join(f"{what} in {', '.join(where)}" for what, where in said.items())


def unlabelled_row(record: Mapping[str, Any], roles: Roles, column: Sequence[str]) -> RoleValues:
    """The values of an unlabelled record.

    Raises:
        SqueezeError: it lacks what the kind reads.
    """
    asked = [item for item in column if item.split("=")[0].strip() != "label"]
    unlabelled = roles.without("label")
    return unlabelled.rows([DataRecord("the record", record)], unlabelled.columns(asked))[0]


def id_of_row(row: RoleValues, *roles: str) -> str:
    """The id of a row, by the first of the roles that it has."""
    return next((str(row.values[role]) for role in roles if row.values.get(role) is not None), "")


def text_of(row: RoleValues, *roles: str) -> str:
    """The text of one role, or of several joined with a space; a list of texts is joined too.

    Raises:
        SqueezeError: there is none.
    """
    texts = [_joined(row.values.get(role)) for role in roles]
    text = " ".join(filter(None, texts))
    if not text:
        raise SqueezeError(
            f"{row.where}: no {' and no '.join(roles)}, where a text was expected; fill it in, or remove this record"
        )
    return text


def _joined(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return " ".join(filter(None, map(_joined, value)))
    return str(value).strip()


def pair_of(row: RoleValues) -> tuple[str, str]:
    """The two texts of a row.

    Raises:
        SqueezeError: one is missing.
    """
    return text_of(row, "first"), text_of(row, "second")


def label_of(row: RoleValues) -> str:
    """The one label of a row.

    Raises:
        SqueezeError: there is none.
    """
    label = _joined(row.values.get("label"))
    if not label:
        raise SqueezeError(f"{row.where}: no label; give one, or remove this record")
    return label


def ordered(labels: Iterable[str]) -> tuple[str, ...]:
    """Labels as they are given ids: numbers by their value, names by the alphabet."""
    names = set(labels)
    return tuple(sorted(names, key=lambda name: (int(name), name)) if all(map(_is_number, names)) else sorted(names))


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()


def to_read(splits: Sequence[str], there: Iterable[str]) -> tuple[str, ...]:
    """The splits to look at: where they are for training the test split is looked at too, to be sure it is another."""
    if "train" in splits and "test" not in splits and "test" in there:
        return (*splits, "test")
    return tuple(splits)


def splits_to_read(source: str, splits: Sequence[str]) -> tuple[str, ...]:
    """The same for a data set of records."""
    return to_read(splits, splits_of(source) if "train" in splits else ())


def classes_of(examples: Splits) -> tuple[str, ...]:
    """The labels of train, or of all splits where train is not among them; gold is a label each.

    Raises:
        SqueezeError: train has one label only, or another split has a label that train lacks.
    """
    labels = ordered(example.gold for example in learned(examples))
    if "train" in examples and len(labels) < 2:
        raise SqueezeError(
            f"{examples['train'][0].where}: every example of train is labelled {labels[0]!r}, so there is nothing to "
            "learn; check the label column, or name another with --column label=NAME"
        )
    check_labels(examples, labels, lambda gold: (gold,))
    return labels


def learned(examples: Splits) -> list[TextExample]:
    """The examples whose labels count: those of train, or all where train is not among them."""
    return list(examples["train"]) if "train" in examples else [one for split in examples.values() for one in split]


def check_labels(examples: Splits, labels: Sequence[str], labels_in: Callable[[Any], Iterable[str]]) -> None:
    """Refuse a label that is not known.

    Raises:
        SqueezeError: there is one; the message says where.
    """
    known = set(labels)
    for split in examples.values():
        for example in split:
            for label in labels_in(example.gold):
                if label not in known:
                    raise SqueezeError(
                        f"{example.where}: the label {label!r} is none of train's ({', '.join(labels)}); "
                        "correct it, or add examples of it to train"
                    )


def assemble(source: str, splits: Sequence[str], examples: Splits, labels: tuple[str, ...], scheme: str) -> Dataset:
    """The data set, once its splits are known to be apart and its ids to be unique.

    Raises:
        SqueezeError: an id comes twice in a split, or train or dev is the test split.
    """
    for items in examples.values():
        _check_ids(items)
    if "test" in examples:
        for split in ("train", "dev"):
            if split in examples:
                check_disjoint(split, _texts(examples[split]), _texts(examples["test"]), source)
    return Dataset({split: tuple(examples[split]) for split in splits}, labels, scheme)


def counts(examples: Splits) -> str:
    """How many examples are in each split, for people."""
    return ", ".join(f"{split} {len(items):,}" for split, items in examples.items())


def _texts(examples: Sequence[TextExample]) -> list[str]:
    return ["\t".join(example.texts) for example in examples]


def _check_ids(examples: Sequence[TextExample]) -> None:
    seen: dict[str, str] = {}
    for example in examples:
        if example.id and example.id in seen:
            raise SqueezeError(
                f"{example.where}: the id {example.id!r} is already used at {seen[example.id]}; "
                "remove one of the two, or give it another"
            )
        seen[example.id] = example.where
