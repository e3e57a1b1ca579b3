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

from biosqueeze.data.lines import STANDARD_INPUT, numbered_lines, piped_lines
from biosqueeze.data.pubtator import TEXT_LINE, pubtator_texts
from biosqueeze.errors import SqueezeError

STDIN = "-"
Format = Literal["jsonl", "pubtator", "text"]
NAMES: Mapping[Format, str] = {"jsonl": "JSON lines", "pubtator": "PubTator", "text": "one text a line"}
Line = tuple[int, str]
_SURROGATE = re.compile(r"\\ud[89a-f]", re.IGNORECASE)


@dataclass(frozen=True)
class Incoming:
    """One record, or why it is none."""

    where: str  # file and line
    values: Mapping[str, Any]  # {"id", "text"} of a PubTator document or a line of text
    fault: str | None = None  # then the values hold at most an id

    @property
    def id(self) -> Any:
        """What the record calls itself, a line of text by its number; None where it does not."""
        return self.values.get("id")


@dataclass(frozen=True)
class Source:
    """Records and how they are written."""

    name: str
    format: Format
    records: Iterator[Incoming]


def open_source(source: str) -> Source:
    """Records of a file, plain or .gz, or of standard input; blank lines are skipped.

    A name that ends in .jsonl or .pubtator says what a file is, and the first line of any other: `{` begins JSON
    lines and ID|t|TITLE begins PubTator; else each line is a text.

    Raises:
        SqueezeError: it cannot be read, or is empty.
        UsageError: nothing is piped in.
    """
    name = STANDARD_INPUT if source == STDIN else source
    lines = ((n, line) for n, line in _lines(source) if line.strip())
    first = next(lines, None)
    if first is None:
        broken = "did the command before it fail?" if source == STDIN else "check that it was written in full"
        raise SqueezeError(f"{name} is empty, and records were expected; {broken}")
    kind = _by_suffix(source) or _by_line(first[1])
    read = {"jsonl": _json_records, "pubtator": _documents, "text": _texts}[kind]
    return Source(name, kind, read(chain([first], lines), name))


def _lines(source: str) -> Iterator[Line]:
    if source == STDIN:
        return piped_lines()
    path = Path(source).expanduser()
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise SqueezeError(f"{source} {what}; give a file (.jsonl, .pubtator, .txt, each also .gz), or - for a pipe")
    return numbered_lines(path)


def _by_suffix(source: str) -> Format | None:
    suffix = Path(source.lower().removesuffix(".gz")).suffix
    known: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".pubtator": "pubtator"}
    return known.get(suffix)


def _by_line(line: str) -> Format:
    if line.lstrip().startswith("{"):
        return "jsonl"
    match = TEXT_LINE.match(line)
    return "pubtator" if match and match[2] == "t" else "text"


def _texts(lines: Iterable[Line], name: str) -> Iterator[Incoming]:
    for number, line in lines:
        yield Incoming(f"{name}:{number}", {"id": number, "text": line})


def _json_records(lines: Iterable[Line], name: str) -> Iterator[Incoming]:
    for number, line in lines:
        where = f"{name}:{number}"
        try:
            yield Incoming(where, _json_record(line, where))
        except SqueezeError as error:
            yield Incoming(where, {}, str(error))


def _json_record(line: str, where: str) -> dict[str, Any]:
    try:
        values = json.loads(line, parse_constant=_refuse)
        if _SURROGATE.search(line):
            json.dumps(values, ensure_ascii=False).encode()
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


def _documents(lines: Iterable[Line], name: str) -> Iterator[Incoming]:
    for group in _groups(lines):
        where = f"{name}:{group[0][0]}"
        try:
            for document in pubtator_texts(group, name):
                yield Incoming(document.where, {"id": document.id, "text": document.text})
        except SqueezeError as error:
            yield Incoming(where, {"id": re.split(r"[|\t]", group[0][1])[0]}, str(error))


def _groups(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """The lines of each document: from a title (or the text of another document) to the next."""
    group: list[Line] = []
    owner = None
    for number, line in lines:
        match = TEXT_LINE.match(line)
        if match and (match[2] == "t" or match[1] != owner):
            if group:
                yield group
            group, owner = [], match[1]
        group.append((number, line))
    if group:
        yield group
