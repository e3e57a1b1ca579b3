"""The columns of words, tags, texts and entities, and data that have no tags."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from biosqueeze.data.lines import data_suffix, numbered_lines
from biosqueeze.data.records.columns import Columns, parse_column_options
from biosqueeze.data.records.incoming_tables import is_border
from biosqueeze.data.records.record import DataRecord
from biosqueeze.data.records.tables import read_file
from biosqueeze.data.sentences import sentences_of, words_of
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.registry import closest
from biosqueeze.tasks import Formulation
from biosqueeze.tasks.encoding.tag_schemes import OUTSIDE
from biosqueeze.tasks.readers.annotated_records import with_entities
from biosqueeze.tasks.readers.tagged import Sentence

WORDS = Columns({"word": ("tokens", "words"), "tag": ("ner_tags", "tags", "labels")})
TEXTS = Columns({"text": ("text",), "entities": ("entities", "spans", "label", "labels")})
_ROLES = (*WORDS.known, *TEXTS.known, "id")


def is_json(path: Path, text: str) -> bool:
    """Return whether a file holds JSON, by its suffix and the beginning of its text."""
    kind = data_suffix(path)
    return kind in (".json", ".jsonl") or (kind == ".txt" and text.lstrip().startswith('{"'))


def has_no_labels(records: Sequence[DataRecord], requested: Mapping[str, str]) -> bool:
    """Return whether records have no tags and no entities: published test sets may be so.

    A list of entities may be empty because a text has none, and counts as one; a list of tags may not.

    Args:
        records: of one split.
        requested: role -> column, of --column.
    """
    named = [requested[role] for role in ("tag", "entities") if role in requested]
    names = {name.casefold() for name in named or (*WORDS.known["tag"], *TEXTS.known["entities"])}
    lists = {"entities", requested.get("entities", "").casefold()}
    items = (record.values.items() for record in with_entities(records))
    values = ((name.casefold(), value) for each in items for name, value in each)
    return not any(name in names and (_is_given(value) or (name in lists and value == [])) for name, value in values)


def _is_given(value: Any) -> bool:
    return any(item is not None for item in value) if isinstance(value, list) else value not in (None, "")


def is_unlabelled_file(path: Path, requested: Mapping[str, str]) -> bool:
    """Return whether a file has words alone, or records without labels; see `has_no_labels`.

    Args:
        path: columns, or records.
        requested: role -> column, of --column.
    """
    lines = [line for _, line in numbered_lines(path) if not is_border(line)]
    if is_json(path, lines[0] if lines else ""):
        return has_no_labels(read_file(path), requested)
    return all(len(line.split()) == 1 for line in lines)


def unlabelled_sentence(record: Mapping[str, Any], formulation: Formulation) -> Sentence:
    """Build a sentence without tags from the words or the text of a record; a text is split into words.

    Words take precedence, unless --column names the text and no words.

    Raises:
        SqueezeError: the record has neither.
        UsageError: --column names another role.
    """
    requested = parse_column_options(formulation.column)
    _check_roles(requested)
    # As in tables of other tasks, the usual name may be written in capitals.
    usual = next((name for name in record if name.casefold() == "text"), "text")
    text_name = requested["text"] if requested.get("text", "") in record else usual
    text = record.get(text_name)
    reads_words = not ("text" in requested and "word" not in requested and isinstance(text, str))
    word_name = next((name for name in (requested.get("word", ""), *WORDS.known["word"]) if name in record), "")
    words: Any = record[word_name] if word_name and reads_words else None
    are_words = isinstance(words, list) and all(isinstance(word, str) and word.strip() for word in words)
    if are_words and (words or not isinstance(text, str)):
        return Sentence(tuple(words), (OUTSIDE,) * len(words))
    if isinstance(text, str):
        return _split(text)
    if words is not None:
        raise SqueezeError(f"{word_name} is no list of words: {str(words)[:40]}; correct the record")
    raise _without_text(record, requested.get("text", "text"))


def _split(text: str) -> Sentence:
    spans = tuple(words_of(text))
    sentence_starts = {start for start, _ in sentences_of(text)}
    starts = tuple(word for word, (start, _) in enumerate(spans) if word and start in sentence_starts)
    return Sentence(tuple(text[a:b] for a, b in spans), (OUTSIDE,) * len(spans), text, spans, starts)


def _without_text(record: Mapping[str, Any], column: str) -> SqueezeError:
    if column in record:
        found = type(record[column]).__name__
        return SqueezeError(f"{column} is of type {found}, and a string was expected; correct the record")
    return SqueezeError(
        f"no {column!r} (a string) and no 'tokens' (a list of words) in a record of "
        f"{', '.join(record) or 'nothing'}.{closest(column, record)} Rename a field, or name it with --column text=NAME"
    )


def _check_roles(requested: Mapping[str, str]) -> None:
    for role, name in requested.items():
        if role not in _ROLES:
            raise UsageError(
                f"--column {role}={name}: there is no role {role!r}.{closest(role, _ROLES)} Roles: {', '.join(_ROLES)}"
            )
