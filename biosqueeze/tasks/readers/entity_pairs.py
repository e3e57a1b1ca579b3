"""Find the two entities in records of a relation data set: by offsets, between marks, or as @TYPE$ dummies."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from biosqueeze.data.records.record import DataRecord
from biosqueeze.errors import SqueezeError
from biosqueeze.files.parsing import parse_json
from biosqueeze.tasks.encoding.entities import Mention, Relation

# How data sets mark the first and the second entity. SciBERT's marks contain a space ("<< aspirin >>"), which
# distinguishes them from the brackets of chemical names.
_MARKS = {
    "<< first >> and [[ second ]]": (r"(?s)<< (.+?) >>", r"(?s)\[\[ (.+?) \]\]"),
    "[E1]first[/E1] and [E2]second[/E2]": (r"(?s)\[E1\] ?(.+?) ?\[/E1\]", r"(?s)\[E2\] ?(.+?) ?\[/E2\]"),
    "<e1>first</e1> and <e2>second</e2>": (r"(?s)<e1> ?(.+?) ?</e1>", r"(?s)<e2> ?(.+?) ?</e2>"),
}
_DUMMY = re.compile(r"@([A-Za-z][\w-]*)\$")
_EXPECTED = 'mark it as << first >> ... [[ second ]], or give {"text", "head": {"start", "end", "type"}, "tail": {...}}'


@dataclass(frozen=True)
class EntityStyle:
    """How a data set gives the two entities of a relation."""

    how: str  # offsets, marks, dummies, or nothing
    description: str  # for messages
    patterns: tuple[str, str] | None = None  # of marks


def style_of(records: Sequence[DataRecord], columns: Mapping[str, str]) -> EntityStyle:
    """Return the style that all records of a data set share.

    Args:
        records: at least one.
        columns: role -> column, as `Columns.of` returns it: text, and head with tail if there are any.

    Raises:
        SqueezeError: only some records mark their entities, or there is a head without a tail.
    """
    if "head" in columns or "tail" in columns:
        if not ("head" in columns and "tail" in columns):
            raise SqueezeError(
                f"{records[0].where}: a head and a tail are needed, and there is only a "
                f"{'head' if 'head' in columns else 'tail'}; name the other's column with --column ROLE=NAME"
            )
        return EntityStyle("offsets", f"entities by their offsets in {columns['head']} and {columns['tail']}")
    texts = [(record.where, text_of(record, columns["text"])) for record in records]
    for description, patterns in _MARKS.items():
        marked = [all(re.search(pattern, text) for pattern in patterns) for _, text in texts]
        if any(marked):
            if not all(marked):
                raise SqueezeError(
                    f"{texts[marked.index(False)][0]}: no two entities marked as {description}, which {sum(marked):,} "
                    "other sentences have; mark them, or remove the line"
                )
            return EntityStyle("marks", f"entities marked as {description}", patterns)
    dummies = sorted({name for _, text in texts for name in _DUMMY.findall(text)})
    if dummies:
        names = ", ".join(f"@{name}$" for name in dummies)
        return EntityStyle("dummies", f"entities already replaced by {names}")
    return EntityStyle("nothing", "no sign of the two entities")


def relation_of(record: DataRecord, columns: Mapping[str, str], style: EntityStyle, gold: str | None) -> Relation:
    """Build the relation of one record.

    Raises:
        SqueezeError: it has no text, or its entities do not match the text.
    """
    text = text_of(record, columns["text"])
    match style.how:
        case "offsets":
            first, second = (_by_offsets(record, columns[role], text) for role in ("head", "tail"))
            return Relation(text, (first, second), gold, where=record.where)
        case "marks":
            text, mentions = _without_marks(text, style.patterns or ("", ""), record.where)
            return Relation(text, mentions, gold, where=record.where)
        case "dummies":
            return Relation(text, _dummies(text), gold, replaced=True, where=record.where)
    return Relation(text, None, gold, where=record.where)


def text_of(record: DataRecord, column: str) -> str:
    """Return the sentence of a record.

    Raises:
        SqueezeError: it is empty or not text.
    """
    value = record.values[column]
    if not isinstance(value, str) or not value.strip():
        raise SqueezeError(
            f"{record.where}: {value!r} in {column}, but a sentence was expected; "
            "remove the line, or name another column with --column text=NAME"
        )
    return value


def no_entities(where: str) -> SqueezeError:
    """Return the error for a sentence without known entities."""
    return SqueezeError(f"{where}: the two entities of the relation are not marked; {_EXPECTED}")


def _by_offsets(record: DataRecord, column: str, text: str) -> Mention:
    value = _object(record.values[column])
    start, end = (value.get(name) for name in ("start", "end"))
    if not (type(start) is int and type(end) is int and 0 <= start < end <= len(text)):
        raise SqueezeError(
            f"{record.where}: {column} is {record.values[column]!r}, but a start and an end within the "
            f'{len(text)} characters of the text were expected; write it as {{"start": 0, "end": 7, "type": "DRUG"}}'
        )
    mention_text = value.get("text")
    if mention_text is not None and mention_text != text[start:end]:
        raise SqueezeError(
            f"{record.where}: {column} has the text {mention_text!r}, but the sentence has {text[start:end]!r} at "
            f"{start} to {end}; correct the offsets (characters from 0, the end exclusive)"
        )
    return Mention(start, end, str(value.get("type") or ""))


def _object(value: Any) -> Mapping[str, Any]:
    """Return a JSON object, parsed if it is the cell of a table; {} for anything else."""
    if isinstance(value, str):
        try:
            value = parse_json(value)
        except ValueError:
            return {}
    return value if isinstance(value, Mapping) else {}


def _without_marks(text: str, patterns: tuple[str, str], where: str) -> tuple[str, tuple[Mention, Mention]]:
    """Return the text without its marks, and the entities in it."""
    matches = [list(re.finditer(pattern, text)) for pattern in patterns]
    if any(len(each) != 1 for each in matches):
        counts = " and ".join(str(len(each)) for each in matches)
        raise SqueezeError(f"{where}: {counts} entities are marked, but one of each was expected; keep one of each")
    pair = [each[0] for each in matches]
    marks = sorted(span for match in pair for span in ((match.start(), match.start(1)), (match.end(1), match.end())))
    if any(end > start for (_, end), (start, _) in pairwise(marks)):
        raise SqueezeError(f"{where}: the marks of the two entities overlap; mark one after the other")
    bare = "".join(text[a:b] for (_, a), (b, _) in zip([(0, 0), *marks], [*marks, (len(text), 0)], strict=True))
    first, second = (_moved(match.span(1), marks) for match in pair)
    return bare, (first, second)


def _moved(span: tuple[int, int], marks: Sequence[tuple[int, int]]) -> Mention:
    """Return a mention with the offsets that it has after the marks are removed."""
    start, end = (offset - sum(b - a for a, b in marks if b <= offset) for offset in span)
    return Mention(start, end)


def _dummies(text: str) -> tuple[Mention, Mention] | None:
    """Return the two dummies of a text in order; one for two overlapping entities (@CHEM-GENE$) counts as both."""
    mentions = [Mention(*match.span(), match[1]) for match in _DUMMY.finditer(text)]
    if len(mentions) == 1 and "-" in mentions[0].type:
        return mentions[0], mentions[0]
    return (mentions[0], mentions[1]) if len(mentions) == 2 else None
