"""Records to be answered, one by one as they arrive: JSON lines, PubTator, or a text on each line.

What is wrong with a record is kept beside it, so that whoever reads may stop there, or answer the others.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from biosqueeze.data.lines import STANDARD_INPUT, Line, check_characters, stdin_lines, tolerant_lines
from biosqueeze.data.pubtator import TEXT_LINE, pubtator_texts
from biosqueeze.errors import SqueezeError

STDIN = "-"
Format = Literal["jsonl", "pubtator", "text"]
NAMES: Mapping[Format, str] = {"jsonl": "JSON lines", "pubtator": "PubTator", "text": "one text a line"}
# What other commands read and this one would answer line by line, markup and all.
_OTHERS = {
    ".xml": "XML",
    ".nxml": "XML",
    ".html": "HTML",
    ".tsv": "a table",
    ".csv": "a table",
    ".conll": "tagged words",
    ".iob": "tagged words",
}
# How the first line of some of them begins.
_BEGINNINGS = {"<?xml": "XML", "<!doctype": "XML or HTML", "-docstart-": "tagged words"}


@dataclass(frozen=True)
class InputRecord:
    """One record, or why it is none."""

    where: str  # file and line
    values: Mapping[str, Any]  # {"id", "text"} of a PubTator document or a line of text
    error: str | None = None  # then the values hold at most an id

    @property
    def id(self) -> Any:
        """What the record calls itself, a line of text by its number; None where it does not."""
        return self.values.get("id")


@dataclass(frozen=True)
class InputStream:
    """Records and how they are written."""

    name: str
    format: Format
    records: Iterator[InputRecord]


def open_input(source: str) -> InputStream:
    """Records of a file, plain or .gz, or of standard input; blank lines are skipped.

    A name that ends in .jsonl or .pubtator says what a file is, and the first line of any other: `{` begins JSON
    lines and ID|t|TITLE begins PubTator; else each line is a text, unless the name or the first line says that the
    file is XML, a table or tagged words.

    Raises:
        SqueezeError: it cannot be read, is empty, or is written in a way that is not read here.
        UsageError: nothing is piped in.
    """
    name = STANDARD_INPUT if source == STDIN else source
    lines = (line for line in _lines(source) if line.text.strip())
    first = next(lines, None)
    if first is None:
        broken = "did the command before it fail?" if source == STDIN else "check that it was written in full"
        raise SqueezeError(f"{name} is empty, and records were expected; {broken}")
    kind = _by_suffix(source) or _by_line(first.text)
    other = next((what for start, what in _BEGINNINGS.items() if first.text.lstrip().lower().startswith(start)), None)
    if kind == "text" and other:
        raise _refused(name, other)
    read = {"jsonl": _json_records, "pubtator": _documents, "text": _texts}[kind]
    return InputStream(name, kind, read(chain([first], lines), name))


def _lines(source: str) -> Iterator[Line]:
    if source == STDIN:
        return stdin_lines()
    path = Path(source).expanduser()
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise SqueezeError(f"{source} {what}; give a file (.jsonl, .pubtator, .txt, each also .gz), or - for a pipe")
    other = _OTHERS.get(_suffix(source))
    if other is not None:
        raise _refused(source, other)
    return tolerant_lines(path)


def _refused(name: str, what: str) -> SqueezeError:
    return SqueezeError(
        f"{name} is {what}, and records to answer were expected; write them as JSON lines "
        '({"id": 1, "text": "..."}), as PubTator, or as a text on each line of a .txt'
    )


def _by_suffix(source: str) -> Format | None:
    known: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".pubtator": "pubtator"}
    return known.get(_suffix(source))


def _suffix(source: str) -> str:
    return Path(source.lower().removesuffix(".gz")).suffix


def _by_line(line: str) -> Format:
    if line.lstrip().startswith("{"):
        return "jsonl"
    match = TEXT_LINE.match(line)
    return "pubtator" if match and match[2] == "t" else "text"


def _texts(lines: Iterable[Line], name: str) -> Iterator[InputRecord]:
    for line in lines:
        values = {"id": line.number} if line.error else {"id": line.number, "text": line.text}
        yield InputRecord(f"{name}:{line.number}", values, line.error)


def _json_records(lines: Iterable[Line], name: str) -> Iterator[InputRecord]:
    for line in lines:
        where = f"{name}:{line.number}"
        try:
            yield InputRecord(where, {} if line.error else _json_record(line.text, where), line.error)
        except SqueezeError as error:
            yield InputRecord(where, {}, str(error))


def _json_record(line: str, where: str) -> dict[str, Any]:
    try:
        values = json.loads(line, parse_constant=_refuse)
        check_characters(line, values)
    except (ValueError, RecursionError) as error:
        raise SqueezeError(
            f"{where}: no JSON ({error}); write one object a line, like {{'id': 1, 'text': '...'}}".replace("'", '"')
        ) from error
    if isinstance(values, dict):
        return values
    way_out = f"such as `jq -c '.[]' {where.rpartition(':')[0]}`" if isinstance(values, list) else 'with a "text"'
    raise SqueezeError(
        f"{where}: a JSON {type(values).__name__}, where an object was expected; write one a line, {way_out}"
    )


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON number")


def _documents(lines: Iterable[Line], name: str) -> Iterator[InputRecord]:
    for group in _groups(lines):
        where = f"{name}:{group[0].number}"
        try:
            _check_text(group)
            for document in pubtator_texts(((line.number, line.text) for line in group), name):
                yield InputRecord(document.where, {"id": document.id, "text": document.text})
        except SqueezeError as error:
            yield InputRecord(where, {"id": re.split(r"[|\t]", group[0].text)[0]}, str(error))


def _check_text(lines: Iterable[Line]) -> None:
    for line in lines:
        if line.error:
            raise SqueezeError(line.error)


def _groups(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """The lines of each document: from a title (or the text of another document) to the next."""
    group: list[Line] = []
    owner = None
    for line in lines:
        match = TEXT_LINE.match(line.text)
        if match and (match[2] == "t" or match[1] != owner):
            if group:
                yield group
            group, owner = [], match[1]
        group.append(line)
    if group:
        yield group
