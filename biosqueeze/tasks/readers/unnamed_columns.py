"""Recognise what the columns of a table without known names hold, and refuse one that would be misread."""

from collections.abc import Hashable, Sequence
from typing import Any

from biosqueeze.data.records.record import DataRecord
from biosqueeze.errors import SqueezeError
from biosqueeze.tasks.encoding.tag_schemes import OUTSIDE, is_tag

FIRST = ("sentence1", "premise", "question", "text_a", "text1", "text_1", "sent1", "query")
SECOND = ("sentence2", "hypothesis", "context", "contexts", "text_b", "text2", "text_2", "sent2", "passage")
ID = ("id", "pair_id", "pairid", "guid", "idx")
# Of columns that some kind of task reads, or that are common in published tables.
_COMMON_NAMES = {
    *("text", "sentence", "title", "abstract", "document", "label", "labels", "class", "category", "target"),
    *("token", "tokens", "word", "words", "tag", "tags", "pos", "index", *FIRST, *SECOND, *ID),
}
_COMPARED_ROWS = 20  # with a first one that may be a header
_FEW_CLASSES = 5  # may all be different in the first records


def check_unnamed_columns(records: Sequence[DataRecord], places: Sequence[str]) -> None:
    """Check that the columns of a table without known names are those that are expected.

    Args:
        records: of a table; the first may be a header.
        places: the role of each column.

    Raises:
        SqueezeError: the first record is a header of other names, or labels are where a text was expected.
    """
    _check_no_header(records, places)
    _check_order(records, places)


def are_classes(golds: Sequence[Hashable]) -> bool:
    """Return whether the labels of the first records may be classes: they recur, and are no tags of words."""
    names = set(golds)
    are_tags = OUTSIDE in names and all(isinstance(name, str) and is_tag(name) for name in names)
    return 0 < len(names) <= max(_FEW_CLASSES, len(golds) // 2) and not are_tags


def _check_no_header(records: Sequence[DataRecord], places: Sequence[str]) -> None:
    """Recognise a header of other roles: a common name of a column, or single words above whole texts."""
    first, below = records[0].values, records[1 : 1 + _COMPARED_ROWS]
    names = [str(value).strip() for value in first.values()]
    roles = _roles_by_content(below, places)
    unlike_label = (name.casefold() for name, role in zip(names, roles, strict=True) if role != "label")
    if _COMMON_NAMES.isdisjoint(unlike_label):
        texts = [str(position) for position, role in enumerate(roles, start=1) if role not in ("label", "id")]
        if any(_has_words(first[column]) for column in texts) or _has_label(records, roles):
            return
        if not all(_have_words(below, column) for column in texts):
            return
    if any(name[:1] == name[-1:] == '"' for name in names):
        advice = "save the table as .csv: in a .tsv, quotes are text"
    else:
        choices = (f"--column {role}={name}" for role, name in zip(roles, names, strict=True))
        advice = f"name the columns: {' '.join(choices)}; if it is an example: {_numbered(roles)}"
    raise SqueezeError(
        f"{records[0].where}: {', '.join(map(repr, names))} looks like a header with unknown names; {advice}"
    )


def _check_order(records: Sequence[DataRecord], places: Sequence[str]) -> None:
    compared = records[: 1 + _COMPARED_ROWS]
    roles = _roles_by_content(compared, places)
    labels, texts = (str(order.index("label") + 1) for order in (roles, places))
    recur = {column: are_classes([row.values[column] for row in compared]) for column in (labels, texts)}
    if labels != texts and recur[labels] and not recur[texts]:
        raise SqueezeError(
            f"{records[0].where}: column {labels} has recurring values where a text was expected, and column {texts} "
            f"has texts where a label was; name the columns: {_numbered(roles)}"
        )


def _roles_by_content(rows: Sequence[DataRecord], places: Sequence[str]) -> tuple[str, ...]:
    """Return the role of each column: as in `places`, but texts and label exchanged where only that fits the rows."""
    texts = [position for position, role in enumerate(places) if role not in ("label", "id")]
    label = places.index("label")
    if len(texts) != 1 or _have_words(rows, str(texts[0] + 1)) or not _have_words(rows, str(label + 1)):
        return tuple(places)
    exchanged = {texts[0]: "label", label: places[texts[0]]}
    return tuple(exchanged.get(position, role) for position, role in enumerate(places))


def _numbered(roles: Sequence[str]) -> str:
    return " ".join(f"--column {role}={position}" for position, role in enumerate(roles, start=1))


def _has_label(records: Sequence[DataRecord], places: Sequence[str]) -> bool:
    """Return whether the first record has a label of the others, or a number."""
    column = str(places.index("label") + 1)
    label, *others = (str(record.values[column]).strip() for record in records)
    return label in others or label.replace(".", "", 1).isdecimal()


def _have_words(rows: Sequence[DataRecord], column: str) -> bool:
    """Return whether most values of a column have several words."""
    return 2 * sum(_has_words(row.values[column]) for row in rows) > len(rows)


def _has_words(value: Any) -> bool:
    return len(str(value).split()) > 1
