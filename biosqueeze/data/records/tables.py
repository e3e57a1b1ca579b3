"""Read records with named fields: tables, JSON lines, JSON, and data sets of the `datasets` package."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from biosqueeze.data.lines import (
    check_characters,
    data_suffix,
    invalid_json,
    numbered_lines,
    read_document,
    tolerant_lines,
)
from biosqueeze.data.records import hub
from biosqueeze.data.records.columns import (
    ADVICE_ON_CSV,
    ADVICE_ON_TSV,
    SHOWN,
    check_line_ends,
    check_names,
    delimiter_of,
    first_duplicate,
    invalid_csv,
)
from biosqueeze.data.records.record import DataRecord
from biosqueeze.data.records.splits import (
    SPLITS,
    SUFFIXES,
    check_splits,
    find_split,
    open_directory,
    require_split,
    shortened,
)
from biosqueeze.errors import SqueezeError
from biosqueeze.files.parsing import nan_as_missing, parse_json
from biosqueeze.progress import counted, note, warn

# The csv module's default limit of 131,072 characters is below the length of some articles; this is the highest that
# every platform accepts.
_MAX_FIELD = 2**31 - 1

NumberedLines = Iterable[tuple[int, str]]


def read_records(source: str, splits: Sequence[str], *, header: Sequence[str] = ()) -> dict[str, list[DataRecord]]:
    """Read splits of a data set, and log their files and columns.

    Args:
        source: a directory with train, dev (or devel, valid, ...) and test as .tsv, .csv, .jsonl, .json
            or .txt (JSON lines or tabs), each plain or with .gz; one without these that `datasets` saved, or with
            Parquet files as on the Hub; or hub:NAME or hub:NAME:CONFIG, which `datasets` loads.
        splits: of train, dev and test.
        header: names that mark a header: the first row of a table is a header if any of them occurs in it (letter
            case is ignored). A table without a header has columns "1", "2", ...

    Raises:
        SqueezeError: a split is missing or empty, or a file is damaged; the message names file and line.
        UsageError: there is no such split.
    """
    check_splits(splits)
    if hub.is_hub(source):
        return _logged(source, hub.read_hub(source, splits))
    directory = open_directory(source)
    if hub.is_saved(directory):
        return _logged(source, hub.read_saved(directory, splits))
    files = {split: require_split(directory, split, SUFFIXES) for split in splits}
    return _logged(source, {split: read_file(path, header=header) for split, path in files.items()}, files)


def splits_of(source: str) -> tuple[str, ...]:
    """Return which of train, dev and test a data set of records has, without reading files.

    Raises:
        SqueezeError: there is no such data set.
    """
    if hub.is_hub(source):
        return hub.hub_splits(source)
    directory = open_directory(source)
    if hub.is_saved(directory):
        return hub.saved_splits(directory)
    return tuple(split for split in SPLITS if find_split(directory, split, SUFFIXES))


def read_file(path: Path, *, header: Sequence[str] = ()) -> list[DataRecord]:
    """Read one file; its suffix determines the format.

    Args:
        path: .tsv, .csv, .jsonl, .json or .txt, plain or with .gz.
        header: as for `read_records`.

    Raises:
        SqueezeError: it is damaged, or holds no record; the message names file and line.
    """
    records = list(_records(path, header))
    if not records:
        raise SqueezeError(f"{path} is empty: it holds no record; check that it was written in full")
    return records


def _records(path: Path, header: Sequence[str]) -> Iterator[DataRecord]:
    if data_suffix(path) == ".json":
        return _json(path)
    lines = _lines_with_returns(path) if data_suffix(path) == ".csv" else numbered_lines(path)
    return parse_records(lines, path, header)


def _lines_with_returns(path: Path) -> Iterator[tuple[int, str]]:
    r"""Stream the lines of a .csv without \n, but with \r: in a quoted cell it counts in offsets, as in predictions."""
    for line in tolerant_lines(path):
        if line.error:
            raise SqueezeError(line.error)
        yield line.number, line.text + line.end.removesuffix("\n")


def parse_records(lines: NumberedLines, path: Path, header: Sequence[str]) -> Iterator[DataRecord]:
    """Parse the lines of a table or of JSON lines, as they are read.

    Args:
        lines: number and content of each line; those of a .csv may end with a carriage return.
        path: its suffix determines the format; a .txt whose first line begins with { has JSON lines.
        header: as for `read_records`.

    Raises:
        SqueezeError: a line is malformed; the message names file and line.
    """
    first, lines = _peek(lines)
    kind = data_suffix(path)
    if kind in (".jsonl", ".json") or (kind == ".txt" and first.lstrip().startswith("{")):
        return _json_lines(lines, path)
    return _table(path, csv_rows(lines, path) if kind == ".csv" else tab_rows(lines), header)


def _peek(lines: NumberedLines) -> tuple[str, NumberedLines]:
    """Return the first line that is not blank, and all lines."""
    head, rest = [], iter(lines)
    for number, line in rest:
        head.append((number, line))
        if line.strip():
            return line, chain(head, rest)
    return "", head


def tab_rows(lines: NumberedLines) -> Iterator[tuple[int, list[str]]]:
    """Split the rows of a .tsv, without quoting: quotes in biomedical tables are text."""
    return ((number, line.split("\t")) for number, line in lines if line)


def csv_rows(lines: NumberedLines, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Parse the rows of a .csv with RFC 4180 quoting; a quoted field may contain line ends; see `delimiter_of`.

    Raises:
        SqueezeError: a row is malformed; the message names file and line.
    """
    csv.field_size_limit(_MAX_FIELD)
    first, lines = _peek(lines)
    rows = csv.reader((line + "\n" for _, line in lines), delimiter=delimiter_of(first), strict=True)
    begin = 1
    try:
        for row in rows:
            if row:
                yield begin, row
            begin = rows.line_num + 1
    except csv.Error as error:
        raise invalid_csv(f"{path}:{begin}", error) from error


def _table(path: Path, rows: Iterator[tuple[int, list[str]]], header: Sequence[str]) -> Iterator[DataRecord]:
    first = next(rows, None)
    if first is None:
        return
    names = _header(first[1], header)
    check_line_ends("".join(names).replace("\r\n", ""), f"{path}:{first[0]}")
    columns = names or [str(position) for position in range(1, len(first[1]) + 1)]
    check_names(columns, f"{path}:{first[0]}")
    if not names:
        yield DataRecord(f"{path}:{first[0]}", dict(zip(columns, first[1], strict=True)))
    is_csv, quoted = data_suffix(path) == ".csv", 0
    advice = ADVICE_ON_CSV if is_csv else ADVICE_ON_TSV
    for number, cells in rows:
        if len(cells) != len(columns):
            raise SqueezeError(
                f"{path}:{number}: {len(cells)} columns, where line {first[0]} has {len(columns)} "
                f"({', '.join(columns)}); correct this row: {advice}"
            )
        quoted += not is_csv and any(map(_is_quoted, cells))
        yield DataRecord(f"{path}:{number}", dict(zip(columns, cells, strict=True)))
    if quoted:
        what = 'have a text in quotes with doubled ones ("") in it, as spreadsheets and pandas write them'
        warn(f"{path}: {quoted:,} rows {what}; between tabs they are part of the text: save the table as .csv")


def _is_quoted(cell: str) -> bool:
    """Return whether a cell is quoted as in a .csv, and has quotes in it."""
    inner = cell[1:-1]
    return cell[:1] == cell[-1:] == '"' and '""' in inner and '"' not in inner.replace('""', "")


def _header(cells: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the column names, or [] if the row is not a header; an unnamed column is called by its position."""
    names = [cell.strip() for cell in cells]
    folded = {name.casefold() for name in known}
    if not any(name.casefold() in folded for name in names):
        return []
    return [name or str(position) for position, name in enumerate(names, start=1)]


def _json_lines(lines: NumberedLines, path: Path) -> Iterator[DataRecord]:
    for number, line in lines:
        if line.strip():
            where = f"{path}:{number}"
            yield DataRecord(where, as_record(_parsed(line, path, number), where))


def _json(path: Path) -> Iterator[DataRecord]:
    """Parse a list of records, an object of records by id, or JSON lines that are named .json."""
    lines = read_document(path)
    text = "\n".join(lines)
    if not text.strip():
        return iter(())
    if is_json_lines(lines):
        return _json_lines(enumerate(lines, start=1), path)
    value = _parsed(text, path, 1)
    if isinstance(value, list):
        return (DataRecord(f"{path}[{n}]", as_record(item, f"{path}[{n}]")) for n, item in enumerate(value))
    if isinstance(value, dict) and are_columns(list(value.values())):
        raise SqueezeError(
            f"{path}: an object of columns, as DataFrame.to_json writes it; write records: "
            "to_json(path, orient='records', lines=True)"
        )
    if isinstance(value, dict) and all(isinstance(item, dict) for item in value.values()):
        return (_with_id(path, key, item) for key, item in value.items())
    raise SqueezeError(
        f"{path}: neither a list of records nor an object of records by id "
        f"(found {_summary(value)}); write it as JSON lines, one record on each"
    )


def are_columns(values: Sequence[Any]) -> bool:
    """Return whether values of a JSON object are columns, each an object of values by the number of the row."""
    rows = list(values[0]) if values and isinstance(values[0], dict) else []
    return all(map(str.isdecimal, rows)) and bool(rows) and all(isinstance(v, dict) and list(v) == rows for v in values)


def _summary(value: Any) -> str:
    if not isinstance(value, dict):
        return f"a {type(value).__name__}"
    return "an object of " + ", ".join(f"{key}: {type(item).__name__}" for key, item in list(value.items())[:4])


def is_json_lines(lines: Sequence[str]) -> bool:
    """Return whether lines are JSON objects, one on each; of a single line that is not known."""
    filled = [line for line in lines if line.strip()]
    try:
        return len(filled) > 1 and isinstance(parse_json(filled[0]), dict)
    except ValueError:
        return False


def _with_id(path: Path, key: str, item: Mapping[str, Any]) -> DataRecord:
    where = f"{path}[{json.dumps(key)}]"
    if str(item.get("id", key)) != key:
        raise SqueezeError(f"{where}: the record has another id, {item['id']!r}; make the two equal")
    return DataRecord(where, {**item, "id": key})


def _parsed(text: str, path: Path, first: int) -> Any:
    try:
        values = parse_json(text, object_pairs_hook=_unique, parse_constant=nan_as_missing)
        check_characters(text, values)
    except _DuplicateKeyError as error:
        where = str(path) if "\n" in text else f"{path}:{first}"
        raise SqueezeError(f"{where}: the key {error.args[0]!r} occurs twice in one object; remove one") from error
    except json.JSONDecodeError as error:
        raise invalid_json(path, error, first) from error
    except UnicodeEncodeError as error:
        raise SqueezeError(f"{path}:{first}: a single surrogate in a string ({error}); correct this line") from error
    return values


class _DuplicateKeyError(Exception):
    """A key occurs twice in one JSON object; `json` alone would keep the last without an error."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise _DuplicateKeyError(first_duplicate([name for name, _ in pairs]))
    return values


def as_record(value: Any, where: str) -> Mapping[str, Any]:
    """Return a JSON value as the fields of a record.

    Raises:
        SqueezeError: it is neither an object nor a pair of text and object, as spaCy writes it.
    """
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], dict):
        return {"text": value[0], **value[1]}  # spaCy's ["text", {"entities": [[0, 4, "Gene"]]}]
    if not isinstance(value, dict):
        raise SqueezeError(
            f'{where}: a JSON {type(value).__name__}, but an object like {{"text": ...}} was expected; '
            "write one record on each line"
        )
    return value


def _logged(
    source: str, records: dict[str, list[DataRecord]], files: Mapping[str, Path] | None = None
) -> dict[str, list[DataRecord]]:
    counts = (
        f"{split}{f' {files[split].name}' if files else ''} {counted(len(rows), 'record')} "
        f"({shortened(list(rows[0].values), SHOWN) or 'no column'})"
        for split, rows in records.items()
    )
    note(f"{source}: {'; '.join(counts)}")
    return records
