"""Read input records for predictions one by one as they arrive: JSON lines, PubTator, tables, tagged words, or text.

An invalid record carries its error message, so that the caller can stop at it, or skip it and go on.
"""

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from biosqueeze.data.annotations.annotated import Annotation
from biosqueeze.data.annotations.pubtator import TEXT_LINE, pubtator_documents
from biosqueeze.data.lines import STANDARD_INPUT, Line, check_characters, data_suffix, stdin_lines, tolerant_lines
from biosqueeze.data.records.columns import check_line_ends, delimiter_of, parse_column_options
from biosqueeze.data.records.incoming_tables import (
    comma_records,
    has_tag,
    is_border,
    is_header,
    tab_records,
    word_records,
)
from biosqueeze.data.records.input_record import InputRecord
from biosqueeze.data.records.splits import WORD_SUFFIXES
from biosqueeze.data.text.text_check import format_by_beginning
from biosqueeze.errors import SqueezeError
from biosqueeze.files.parsing import parse_json
from biosqueeze.registry import closest

STDIN = "-"
Format = Literal["jsonl", "pubtator", "csv", "tsv", "conll", "text"]
NAMES: Mapping[Format, str] = {
    "jsonl": "JSON lines",
    "pubtator": "PubTator",
    "csv": "a table with commas",
    "tsv": "a table with tabs",
    "conll": "tagged words",
    "text": "one text a line",
}
_SUFFIXES: Mapping[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".pubtator": "pubtator",
    ".csv": "csv",
    **dict.fromkeys(WORD_SUFFIXES, "conll"),
}
# Formats that other commands read. As one text per line they would give a prediction for each line of markup.
_OTHER_SUFFIXES = {
    **{".xml": "XML", ".nxml": "XML", ".html": "HTML", ".parquet": "Parquet"},
    **{".xlsx": "a spreadsheet", ".docx": "a document of Word"},  # zip archives, of no use unpacked
}
_TELLING_BYTES = 1 << 19  # several buffers
_JSON_LIST = re.compile(r"\s*\[\s*(\{|$)")


@dataclass
class FilePosition:
    """How much of a file has been read, a buffer ahead of its records."""

    size: int
    read: int = 0

    def advance(self, amount: int = 1) -> None:
        """Count bytes that were read."""
        self.read += amount

    def expected(self, records: int) -> int | None:
        """Return about how many records the file has, if it had so many until here; None while that is unknown."""
        if self.read < _TELLING_BYTES or self.read >= self.size:
            return None
        return max(records, int(float(f"{records * self.size / self.read:.2e}")))


@dataclass(frozen=True)
class InputStream:
    """Input records and their format."""

    name: str
    format: Format
    records: Iterator[InputRecord]
    has_names: bool = False
    """Whether the fields have names, as in JSON lines and tables with a header; numbers are no columns of them."""
    position: FilePosition | None = None
    """None for a pipe, and for texts that were given."""


def open_input(
    source: str, column: Sequence[str] = (), required: Sequence[str] = (), *, with_entities: bool = False
) -> InputStream:
    """Open the records of a file or pipe, plain or .gz, or of standard input; it is read once, from its beginning.

    The suffixes .jsonl, .pubtator, .csv and .conll determine the format. Otherwise the first line does: `{` begins
    JSON lines, ID|t|TITLE begins PubTator, and -DOCSTART-, a comment (`# sent_id = 3`), or a word, a tab and a tag
    begin tagged words; names of columns between tabs, commas or semicolons, one of them that of a text, begin a table.
    A .tsv is a table, unless its first line has a word and a tag. Any other file has one text per line, unless its name
    or first line shows that it is XML, or a JSON list.

    Args:
        source: name of the file, or -.
        column: the values of --column, ROLE=COLUMN each. They may be those of the fine-tuning, whose columns these
            records need not have: numbers mean that a table has no header, unless its first row is one.
        required: those that were given for these records: numbers mean that a table has no header.
        with_entities: read the annotations of PubTator too.

    Raises:
        SqueezeError: the source cannot be read, is empty, or has a format that is not read here.
        UsageError: nothing is piped in.
    """
    name = STANDARD_INPUT if source == STDIN else source
    position = _position(source)
    lines = _lines(source, position)
    beginning = list(_up_to_text(lines))
    if not beginning or not beginning[-1].text.strip():
        check = "did the command before it fail?" if source == STDIN else "check that it was written in full"
        raise SqueezeError(f"{name} is empty, and records were expected; {check}")
    columns, given = parse_column_options(column), parse_column_options(required)
    kind = _format_of(source, name, beginning[-1].text, columns)
    if kind in ("jsonl", "text") and _JSON_LIST.match(beginning[-1].text):
        raise SqueezeError(f"{name}:{beginning[-1].number}: {_unexpected_json('list', name)}")
    has_header = not _are_numbers(given) and _has_header(beginning[-1].text, kind, columns)
    every = chain(beginning, lines)
    filled = (line for line in every if line.text.strip())
    records = {
        "jsonl": lambda: _json_records(filled, name),
        "pubtator": lambda: _documents(filled, name, with_entities=with_entities),
        "csv": lambda: comma_records(every, name, has_header=has_header),
        "tsv": lambda: tab_records(filled, name, has_header=has_header),
        "conll": lambda: word_records(every, name, columns),
        "text": lambda: _texts(filled, name),
    }
    has_names = kind == "jsonl" or (kind in ("csv", "tsv") and has_header)
    return InputStream(name, kind, _with_required(records[kind](), given), has_names, position)


def _position(source: str) -> FilePosition | None:
    path = Path(source).expanduser()
    return FilePosition(path.stat().st_size) if source != STDIN and path.is_file() else None


def _has_header(line: str, kind: Format, columns: Mapping[str, str]) -> bool:
    """Return whether the first row of a table has names; columns of the fine-tuning may be those of another table."""
    of_table = {role: column for role, column in columns.items() if role not in ("word", "tag")}
    return not _are_numbers(of_table) or is_header(line, "\t" if kind == "tsv" else delimiter_of(line))


def _are_numbers(columns: Mapping[str, str]) -> bool:
    return bool(columns) and all(column.isdecimal() for column in columns.values())


def _with_required(records: Iterator[InputRecord], columns: Mapping[str, str]) -> Iterator[InputRecord]:
    """Yield the records with the id that --column names; one without the id, text or words named gets an error."""
    named = {role: columns[role] for role in ("text", "word", "id") if role in columns}
    for record in records:
        waived = {"word"} if "tokens" in record.values else set()  # of a column file, whose column has another name
        lacking = (name for role, name in named.items() if name not in record.values and role not in waived)
        missing = next(lacking, None)
        if missing is None or record.error:
            has_own = "id" in named and not record.error
            yield replace(record, id_field=named["id"]) if has_own else record
            continue
        fields = ", ".join(record.values) or "none"
        error = f"{record.where}: no column {missing!r}; there are {fields}.{closest(missing, record.values)}"
        yield replace(record, error=error)


def given_texts(texts: Sequence[str]) -> InputStream:
    """Return the texts of --text as records, with their numbers from 1 as ids."""
    records = (_given_text(f"--text {number}", {"id": number, "text": text}) for number, text in enumerate(texts, 1))
    return InputStream("--text", "text", records)


def _given_text(where: str, values: dict[str, Any]) -> InputRecord:
    try:
        values["text"].encode()
    except UnicodeEncodeError:  # of bytes of another encoding, or half a character
        return InputRecord(where, {"id": values["id"]}, f"{where}: not UTF-8; convert the text first")
    return InputRecord(where, values)


def _up_to_text(lines: Iterator[Line]) -> Iterator[Line]:
    """Yield lines up to the first that is not blank."""
    for line in lines:
        yield line
        if line.text.strip():
            return


def _lines(source: str, position: FilePosition | None) -> Iterator[Line]:
    if source == STDIN:
        return stdin_lines()
    path = Path(source).expanduser()
    if path.is_dir() or not path.exists():
        state = "is a directory" if path.is_dir() else "does not exist"
        raise SqueezeError(
            f"{source} {state}; give a file (.jsonl, .csv, .tsv, .pubtator, .conll, .txt, also .gz), or - for a pipe"
        )
    other = _OTHER_SUFFIXES.get(data_suffix(Path(source)))
    if other is not None:
        raise _unsupported(source, other)
    return tolerant_lines(path, position)


def _unsupported(name: str, what: str) -> SqueezeError:
    return SqueezeError(
        f"{name} is {what}, and input records were expected; write them as JSON lines "
        '({"id": 1, "text": "..."}), as PubTator, as a table, or as one text on each line of a .txt'
    )


def _format_of(source: str, name: str, line: str, columns: Mapping[str, str]) -> Format:
    """Return the format by the suffix and the roles of --column, or by the first line that is not blank."""
    suffix = data_suffix(Path(source))
    if suffix == ".tsv":
        # The roles of a tagger's fine-tuning are among the columns; they do not make words of a table.
        names_words = "word" in columns and "text" not in columns and not is_header(line, "\t")
        return "conll" if is_border(line) or has_tag(line) or names_words else "tsv"
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if other := format_by_beginning(line):
        raise _unsupported(name, other)
    return _format_by_line(line)


def _format_by_line(line: str) -> Format:
    if line.lstrip().startswith("{"):
        return "jsonl"
    match = TEXT_LINE.match(line)
    if match and match[2] == "t":
        return "pubtator"
    if is_border(line) or ("\t" in line and has_tag(line)):
        return "conll"
    if is_header(line, "\t"):
        return "tsv"
    return "csv" if is_header(line, delimiter_of(line)) else "text"


def _texts(lines: Iterable[Line], name: str) -> Iterator[InputRecord]:
    for line in lines:
        where, error = f"{name}:{line.number}", line.error
        try:
            check_line_ends(line.text, where)
        except SqueezeError as wrong:
            error = str(wrong)
        yield InputRecord(where, {"id": line.number} | ({} if error else {"text": line.text}), error)


def _json_records(lines: Iterable[Line], name: str) -> Iterator[InputRecord]:
    for line in lines:
        where = f"{name}:{line.number}"
        try:
            yield InputRecord(where, {} if line.error else _json_record(line.text, where), line.error)
        except SqueezeError as error:
            yield InputRecord(where, {}, str(error))


def _json_record(line: str, where: str) -> dict[str, Any]:
    try:
        values = parse_json(line, parse_constant=_refuse_constant, parse_float=_finite)
        check_characters(line, values)
    except ValueError as error:
        example = '{"id": 1, "text": "..."}'
        raise SqueezeError(f"{where}: invalid JSON ({error}); write one object per line, like {example}") from error
    if isinstance(values, dict):
        return values
    raise SqueezeError(f"{where}: {_unexpected_json(type(values).__name__, where.rpartition(':')[0])}")


def _unexpected_json(what: str, name: str) -> str:
    """Return the message for another JSON value than an object, with the command that splits a list."""
    way_out = 'with a "text"'
    if what == "list":
        file = shlex.quote(name)
        of_file = f"gzip -dc {file} | jq -c '.[]'" if name.endswith(".gz") else f"jq -c '.[]' {file}"
        way_out = "with `| jq -c '.[]' |` in the pipe" if name == STANDARD_INPUT else f"such as `{of_file}`"
    return f"a JSON {what}, but an object was expected; write one per line, {way_out}"


def _refuse_constant(constant: str) -> Any:
    """Refuse NaN and Infinity, which Python's parser takes and JSON does not have."""
    raise ValueError(f"{constant} is not a JSON number")


def _finite(number: str) -> float:
    """Parse a number, and refuse one such as 1e400, which Python parses as Infinity."""
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number:.20} is too large a number")
    return value


def _documents(lines: Iterable[Line], name: str, *, with_entities: bool) -> Iterator[InputRecord]:
    for block in _blocks(lines):
        where = f"{name}:{block[0].number}"
        try:
            _check_lines(block)
            numbered = ((line.number, line.text) for line in block)
            for document in pubtator_documents(numbered, name, annotated=with_entities):
                entities = {"entities": list(map(_entity, document.annotations))} if with_entities else {}
                yield InputRecord(document.where, {"id": document.id, "text": document.text, **entities})
        except SqueezeError as error:
            yield InputRecord(where, {"id": re.split(r"[|\t]", block[0].text)[0]}, str(error))


def _entity(annotation: Annotation) -> dict[str, Any]:
    return {"start": annotation.start, "end": annotation.end, "type": annotation.type}


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
