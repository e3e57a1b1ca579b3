"""Read input records for predictions one by one as they arrive: JSON lines, PubTator, or one text per line.

An invalid record carries its error message, so that the caller can stop at it, or skip it and go on.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from biosqueeze.data.lines import STANDARD_INPUT, Line, check_characters, stdin_lines, tolerant_lines
from biosqueeze.data.pubtator import TEXT_LINE, pubtator_texts
from biosqueeze.errors import SqueezeError
from biosqueeze.parsing import parse_json

STDIN = "-"
Format = Literal["jsonl", "pubtator", "text"]
NAMES: Mapping[Format, str] = {"jsonl": "JSON lines", "pubtator": "PubTator", "text": "one text a line"}
# Formats that other commands read. As one text per line they would give a prediction for each line of markup.
_OTHER_SUFFIXES = {
    ".xml": "XML",
    ".nxml": "XML",
    ".html": "HTML",
    ".tsv": "a table",
    ".csv": "a table",
    ".conll": "tagged words",
    ".iob": "tagged words",
}
_OTHER_FIRST_LINES = {"<?xml": "XML", "<!doctype": "XML or HTML", "-docstart-": "tagged words"}


@dataclass(frozen=True)
class InputRecord:
    """One record, or the error of an invalid one."""

    where: str  # file and line
    values: Mapping[str, Any]  # {"id", "text"} of a PubTator document or a line of text; of an invalid record its id
    error: str | None = None

    @property
    def id(self) -> Any:
        """The id of the record, or the number of its line for plain text; None if it has none."""
        return self.values.get("id")


@dataclass(frozen=True)
class InputStream:
    """Input records and their format."""

    name: str
    format: Format
    records: Iterator[InputRecord]


def open_input(source: str) -> InputStream:
    """Open the records of a file, plain or .gz, or of standard input; blank lines are skipped.

    The suffixes .jsonl and .pubtator determine the format. Otherwise the first line does: `{` begins JSON lines and
    ID|t|TITLE begins PubTator; any other file has one text per line, unless its name or first line shows that it is
    XML, a table or tagged words.

    Raises:
        SqueezeError: the source cannot be read, is empty, or has a format that is not read here.
        UsageError: nothing is piped in.
    """
    name = STANDARD_INPUT if source == STDIN else source
    lines = (line for line in _lines(source) if line.text.strip())
    first = next(lines, None)
    if first is None:
        check = "did the command before it fail?" if source == STDIN else "check that it was written in full"
        raise SqueezeError(f"{name} is empty, and records were expected; {check}")
    kind = _format_by_suffix(source) or _format_by_line(first.text)
    beginning = first.text.lstrip().lower()
    other = next((what for start, what in _OTHER_FIRST_LINES.items() if beginning.startswith(start)), None)
    if kind == "text" and other:
        raise _unsupported(name, other)
    parse = {"jsonl": _json_records, "pubtator": _documents, "text": _texts}[kind]
    return InputStream(name, kind, parse(chain([first], lines), name))


def _lines(source: str) -> Iterator[Line]:
    if source == STDIN:
        return stdin_lines()
    path = Path(source).expanduser()
    if not path.is_file():
        state = "is a directory" if path.is_dir() else "does not exist"
        raise SqueezeError(f"{source} {state}; give a file (.jsonl, .pubtator, .txt, each also .gz), or - for a pipe")
    other = _OTHER_SUFFIXES.get(_suffix(source))
    if other is not None:
        raise _unsupported(source, other)
    return tolerant_lines(path)


def _unsupported(name: str, what: str) -> SqueezeError:
    return SqueezeError(
        f"{name} is {what}, and input records were expected; write them as JSON lines "
        '({"id": 1, "text": "..."}), as PubTator, or as one text on each line of a .txt'
    )


def _format_by_suffix(source: str) -> Format | None:
    formats: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".pubtator": "pubtator"}
    return formats.get(_suffix(source))


def _suffix(source: str) -> str:
    return Path(source.lower().removesuffix(".gz")).suffix


def _format_by_line(line: str) -> Format:
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
        values = parse_json(line, parse_constant=_refuse_constant)
        check_characters(line, values)
    except ValueError as error:
        example = '{"id": 1, "text": "..."}'
        raise SqueezeError(f"{where}: invalid JSON ({error}); write one object per line, like {example}") from error
    if isinstance(values, dict):
        return values
    way_out = f"such as `jq -c '.[]' {where.rpartition(':')[0]}`" if isinstance(values, list) else 'with a "text"'
    raise SqueezeError(
        f"{where}: a JSON {type(values).__name__}, but an object was expected; write one per line, {way_out}"
    )


def _refuse_constant(constant: str) -> Any:
    """Refuse NaN and Infinity, which Python's parser takes and JSON does not have."""
    raise ValueError(f"{constant} is not a JSON number")


def _documents(lines: Iterable[Line], name: str) -> Iterator[InputRecord]:
    for block in _blocks(lines):
        where = f"{name}:{block[0].number}"
        try:
            _check_lines(block)
            for document in pubtator_texts(((line.number, line.text) for line in block), name):
                yield InputRecord(document.where, {"id": document.id, "text": document.text})
        except SqueezeError as error:
            yield InputRecord(where, {"id": re.split(r"[|\t]", block[0].text)[0]}, str(error))


def _check_lines(lines: Iterable[Line]) -> None:
    for line in lines:
        if line.error:
            raise SqueezeError(line.error)


def _blocks(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Group the lines of each document: from a title (or the text of another document) to the next."""
    block: list[Line] = []
    document_id = None
    for line in lines:
        match = TEXT_LINE.match(line.text)
        if match and (match[2] == "t" or match[1] != document_id):
            if block:
                yield block
            block, document_id = [], match[1]
        block.append(line)
    if block:
        yield block
