"""Find the two entities in records of a relation data set: given by offsets, between marks, or as @TYPE$ dummies."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from biosqueeze.data.record import DataRecord
from biosqueeze.errors import SqueezeError
from biosqueeze.tasks.encoding.entities import Mention, Relation

# How data mark the first and the second entity. SciBERT's marks have a space within ("<< aspirin >>"), which tells them
# from the brackets of chemical names.
_MARKS = {
    "<< first >> and [[ second ]]": (r"(?s)<< (.+?) >>", r"(?s)\[\[ (.+?) \]\]"),
    "[E1]first[/E1] and [E2]second[/E2]": (r"(?s)\[E1\] ?(.+?) ?\[/E1\]", r"(?s)\[E2\] ?(.+?) ?\[/E2\]"),
    "<e1>first</e1> and <e2>second</e2>": (r"(?s)<e1> ?(.+?) ?</e1>", r"(?s)<e2> ?(.+?) ?</e2>"),
}
_DUMMY = re.compile(r"@([A-Za-z][\w-]*)\$")
_EXPECTED = 'mark it as << first >> ... [[ second ]], or give {"text", "head": {"start", "end", "type"}, "tail": {...}}'


@dataclass(frozen=True)
class EntityStyle:
    """How a data set tells which two entities are meant."""

    how: str  # offsets, marks, dummies, or nothing
    said: str  # for people
    patterns: tuple[str, str] | None = None


def style_of(records: Sequence[DataRecord], columns: Mapping[str, str]) -> EntityStyle:
    """What all the records of a data set have in common.

    Args:
        records: at least one.
        columns: role -> column, as `Columns.of` gives it: text, and head with tail where there are any.

    Raises:
        SqueezeError: some mark their entities and some do not, or there is a head without a tail.
    """
    if "head" in columns or "tail" in columns:
        if not ("head" in columns and "tail" in columns):
            raise SqueezeError(
                f"{records[0].where}: a head and a tail are needed, and there is only a "
                f"{'head' if 'head' in columns else 'tail'}; name the other's column with --column ROLE=NAME"
            )
        return EntityStyle("offsets", f"entities by their offsets in {columns['head']} and {columns['tail']}")
    texts = [(record.where, text_of(record, columns["text"])) for record in records]
    for said, patterns in _MARKS.items():
        marked = [all(re.search(pattern, text) for pattern in patterns) for _, text in texts]
        if any(marked):
            if not all(marked):
                raise SqueezeError(
                    f"{texts[marked.index(False)][0]}: two entities as {said}, which {sum(marked):,} other sentences "
                    "have, are not here; mark them, or take the line out"
                )
            return EntityStyle("marks", f"entities marked as {said}", patterns)
    found = sorted({name for _, text in texts for name in _DUMMY.findall(text)})
    if found:
        return EntityStyle(
            "dummies", f"entities that are replaced already, by {', '.join(f'@{name}$' for name in found)}"
        )
    return EntityStyle("nothing", "no sign of which two entities are meant")


def relation_of(record: DataRecord, columns: Mapping[str, str], style: EntityStyle, gold: str | None) -> Relation:
    """Read one record.

    Raises:
        SqueezeError: it has no text, or its entities are not where it says.
    """
    text = text_of(record, columns["text"])
    match style.how:
        case "offsets":
            first, second = (_given(record, columns[role], text) for role in ("head", "tail"))
            return Relation(text, (first, second), gold, where=record.where)
        case "marks":
            text, mentions = _unmarked(text, style.patterns or ("", ""), record.where)
            return Relation(text, mentions, gold, where=record.where)
        case "dummies":
            return Relation(text, _replaced(text), gold, replaced=True, where=record.where)
    return Relation(text, None, gold, where=record.where)


def text_of(record: DataRecord, column: str) -> str:
    """The sentence.

    Raises:
        SqueezeError: it is empty, or no text.
    """
    value = record.values[column]
    if not isinstance(value, str) or not value.strip():
        raise SqueezeError(
            f"{record.where}: {value!r} in {column}, where a sentence was expected; "
            "take the line out, or name another column with --column text=NAME"
        )
    return value


def no_entities(where: str) -> SqueezeError:
    """The error for a sentence that does not tell its two entities."""
    return SqueezeError(f"{where}: which two entities are meant is not said; {_EXPECTED}")


def _given(record: DataRecord, column: str, text: str) -> Mention:
    value = _object(record.values[column])
    start, end = (value.get(name) for name in ("start", "end"))
    if not (type(start) is int and type(end) is int and 0 <= start < end <= len(text)):
        raise SqueezeError(
            f"{record.where}: {column} is {record.values[column]!r}, where a start and an end within the "
            f'{len(text)} characters of the text were expected; write it as {{"start": 0, "end": 7, "type": "DRUG"}}'
        )
    said = value.get("text")
    if said is not None and said != text[start:end]:
        raise SqueezeError(
            f"{record.where}: {column} says {said!r}, but the text has {text[start:end]!r} at {start} to {end}; "
            "correct the offsets (characters from 0, the end exclusive)"
        )
    return Mention(start, end, str(value.get("type") or ""))


def _object(value: Any) -> Mapping[str, Any]:
    """A JSON object, or one that a table's cell spells."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, Mapping) else {}


def _unmarked(text: str, patterns: tuple[str, str], where: str) -> tuple[str, tuple[Mention, Mention]]:
    """The text without its marks, and where the entities are in that."""
    matches = [list(re.finditer(pattern, text)) for pattern in patterns]
    if any(len(found) != 1 for found in matches):
        counts = " and ".join(str(len(found)) for found in matches)
        raise SqueezeError(f"{where}: {counts} entities are marked, where one of each was expected; keep one of each")
    pair = [found[0] for found in matches]
    marks = sorted(span for match in pair for span in ((match.start(), match.start(1)), (match.end(1), match.end())))
    if any(end > start for (_, end), (start, _) in pairwise(marks)):
        raise SqueezeError(f"{where}: the marks of the two entities run into each other; mark one after the other")
    bare = "".join(text[a:b] for (_, a), (b, _) in zip([(0, 0), *marks], [*marks, (len(text), 0)], strict=True))
    first, second = (_moved(match.span(1), marks) for match in pair)
    return bare, (first, second)


def _moved(span: tuple[int, int], marks: Sequence[tuple[int, int]]) -> Mention:
    """Where an entity stands once the marks are taken out."""
    start, end = (place - sum(b - a for a, b in marks if b <= place) for place in span)
    return Mention(start, end)


def _replaced(text: str) -> tuple[Mention, Mention] | None:
    """The dummies in a text, in their order; one for two entities that overlap (@CHEM-GENE$) counts as both."""
    found = [Mention(*match.span(), match[1]) for match in _DUMMY.finditer(text)]
    if len(found) == 1 and "-" in found[0].type:
        return found[0], found[0]
    return (found[0], found[1]) if len(found) == 2 else None
