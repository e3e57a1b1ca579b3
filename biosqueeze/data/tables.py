"""Records of a data set with named fields: tables, JSON lines, JSON, and data sets of the `datasets` package."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from biosqueeze.data import hub
from biosqueeze.data.columns import Columns, check_unique, parse_column_options, pick
from biosqueeze.data.lines import check_characters, numbered_lines
from biosqueeze.data.record import DataRecord
from biosqueeze.data.splits import STEMS, check_splits, find_split, folds, open_directory, require_split
from biosqueeze.errors import SqueezeError
from biosqueeze.progress import note

__all__ = [
    "SUFFIXES",
    "Columns",
    "DataRecord",
    "check_unique",
    "folds",
    "parse_column_options",
    "pick",
    "read_file",
    "read_records",
    "splits_of",
]

# The module's own limit of 131,072 characters is less than some full articles have; this is the highest everywhere.
_LONGEST_FIELD = 2**31 - 1
SUFFIXES = (".tsv", ".csv", ".jsonl", ".json", ".txt")


def read_records(source: str, splits: Sequence[str], *, header: Sequence[str] = ()) -> dict[str, list[DataRecord]]:
    """Read splits of a data set, and say which files they were and what columns those have.

    Args:
        source: a directory with train, dev (or devel, valid, validation) and test as .tsv, .csv, .jsonl, .json
            or .txt (JSON lines or tabs), each plain or with .gz; a directory that `datasets` saved; or
            hub:NAME or hub:NAME:CONFIG, which `datasets` loads.
        splits: of train, dev and test.
        header: names that tell a header: the first row of a table is one if any of them occurs in it (in
            capitals or not). A table without a header has columns "1", "2", ...

    Raises:
        SqueezeError: a split is missing or empty, or a file is damaged; the message names file and line.
        UsageError: there is no such split.
    """
    check_splits(splits)
    if hub.is_hub(source):
        return _said(source, hub.read_hub(source, splits))
    directory = open_directory(source)
    if hub.is_saved(directory):
        return _said(source, hub.read_saved(directory, splits))
    files = {split: require_split(directory, split, SUFFIXES) for split in splits}
    return _said(source, {split: read_file(path, header=header) for split, path in files.items()}, files)


def splits_of(source: str) -> tuple[str, ...]:
    """Which of train, dev and test a data set has, without reading it.

    Raises:
        SqueezeError: there is no such data set.
    """
    if hub.is_hub(source):
        return hub.hub_splits(source)
    directory = open_directory(source)
    if hub.is_saved(directory):
        return hub.saved_splits(directory)
    return tuple(split for split in STEMS if find_split(directory, split, SUFFIXES))


def read_file(path: Path, *, header: Sequence[str] = ()) -> list[DataRecord]:
    """Read one file; its suffix tells the format.

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
    kind = (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()
    if kind == ".jsonl" or (kind == ".txt" and _begins_with_object(path)):
        return _json_lines(path)
    if kind == ".json":
        return _json(path)
    return _table(path, _csv_rows(path) if kind == ".csv" else _tab_rows(path), header)


def _begins_with_object(path: Path) -> bool:
    first = next((line for _, line in numbered_lines(path) if line.strip()), "")
    return first.lstrip().startswith("{")


def _tab_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Rows of a .tsv: never quoted, for the quotes in biomedical tables are text."""
    return ((number, line.split("\t")) for number, line in numbered_lines(path) if line)


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Rows of a .csv as RFC 4180 quotes them; a quoted field may hold line ends."""
    csv.field_size_limit(_LONGEST_FIELD)
    rows = csv.reader((line + "\n" for _, line in numbered_lines(path)), strict=True)
    begin = 1
    try:
        for row in rows:
            if row:
                yield begin, row
            begin = rows.line_num + 1
    except csv.Error as error:
        raise SqueezeError(
            f"{path}:{begin}: not a row of a .csv ({error}); quote a field that holds a comma, a quote or a "
            'line end, and write a quote in it as ""; or save it as .tsv, where quotes are text'
        ) from error


def _table(path: Path, rows: Iterator[tuple[int, list[str]]], header: Sequence[str]) -> Iterator[DataRecord]:
    first = next(rows, None)
    if first is None:
        return
    names = _header(first[1], header)
    columns = names or [str(place) for place in range(1, len(first[1]) + 1)]
    _check_names(columns, f"{path}:{first[0]}")
    if not names:
        yield DataRecord(f"{path}:{first[0]}", dict(zip(columns, first[1], strict=True)))
    for number, cells in rows:
        if len(cells) != len(columns):
            raise SqueezeError(
                f"{path}:{number}: {len(cells)} columns, where line {first[0]} has {len(columns)} "
                f"({', '.join(columns)}); mend this row{_hint(path)}"
            )
        yield DataRecord(f"{path}:{number}", dict(zip(columns, cells, strict=True)))


def _hint(path: Path) -> str:
    if ".csv" in path.suffixes:
        return ': quote a field that holds a comma, "like, this"'
    return ": a tab or a line end inside a text must become a space"


def _header(cells: Sequence[str], known: Sequence[str]) -> list[str]:
    """Names of the columns, or none where the row is no header; a column without a name goes by its place."""
    names = [cell.strip() for cell in cells]
    wanted = {name.casefold() for name in known}
    if not any(name.casefold() in wanted for name in names):
        return []
    return [name or str(place) for place, name in enumerate(names, start=1)]


def _check_names(columns: Sequence[str], where: str) -> None:
    twice = next((name for place, name in enumerate(columns) if name in columns[:place]), None)
    if twice is not None:
        raise SqueezeError(f"{where}: two columns are called {twice!r}; rename one of them")


def _json_lines(path: Path) -> Iterator[DataRecord]:
    for number, line in numbered_lines(path):
        if line.strip():
            where = f"{path}:{number}"
            yield DataRecord(where, _object(_parsed(line, path, number), where))


def _json(path: Path) -> Iterator[DataRecord]:
    """Records of a list, or of an object of records by their ids; JSON lines that are called .json too."""
    lines = [line for _, line in numbered_lines(path)]
    text = "\n".join(lines)
    if not text.strip():
        return iter(())
    if _is_json_lines(lines):
        return _json_lines(path)
    value = _parsed(text, path, 1)
    if isinstance(value, list):
        return (DataRecord(f"{path}[{n}]", _object(item, f"{path}[{n}]")) for n, item in enumerate(value))
    if isinstance(value, dict) and all(isinstance(item, dict) for item in value.values()):
        return (_with_id(path, key, item) for key, item in value.items())
    raise SqueezeError(
        f"{path}: neither a list of records nor an object of records by id "
        f"(found {_shape(value)}); write it as JSON lines, one record on each"
    )


def _shape(value: Any) -> str:
    if not isinstance(value, dict):
        return f"a {type(value).__name__}"
    return "an object of " + ", ".join(f"{key}: {type(item).__name__}" for key, item in list(value.items())[:4])


def _is_json_lines(lines: Sequence[str]) -> bool:
    whole = [line for line in lines if line.strip()]
    try:
        return len(whole) > 1 and isinstance(json.loads(whole[0]), dict)
    except ValueError:
        return False


def _with_id(path: Path, key: str, item: Mapping[str, Any]) -> DataRecord:
    where = f"{path}[{json.dumps(key)}]"
    if str(item.get("id", key)) != key:
        raise SqueezeError(f"{where}: the record has another id, {item['id']!r}; make the two equal")
    return DataRecord(where, {**item, "id": key})


def _parsed(text: str, path: Path, first: int) -> Any:
    try:
        values = json.loads(text, object_pairs_hook=_unique)
        check_characters(text, values)
    except _DoubleKeyError as error:
        raise SqueezeError(f"{path}: the key {error.args[0]!r} stands twice in one object; remove one") from error
    except json.JSONDecodeError as error:
        where = f"{path}:{first + error.lineno - 1}"
        raise SqueezeError(f"{where}: not JSON ({error.msg} at column {error.colno}); mend it there") from error
    except UnicodeEncodeError as error:
        raise SqueezeError(f"{path}:{first}: half a character ({error}); mend it there") from error
    return values


class _DoubleKeyError(Exception):
    """A key that stands twice in one JSON object; `json` itself would silently keep the last."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise _DoubleKeyError(next(name for place, name in enumerate(names) if name in names[:place]))
    return made


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise SqueezeError(
            f'{where}: a JSON {type(value).__name__}, where an object like {{"text": ...}} was expected; '
            "write one record on each line"
        )
    return value


def _said(
    source: str, records: dict[str, list[DataRecord]], files: Mapping[str, Path] | None = None
) -> dict[str, list[DataRecord]]:
    counts = (
        f"{split}{f' {files[split].name}' if files else ''} {len(rows):,} records "
        f"({', '.join(rows[0].values) or 'no column'})"
        for split, rows in records.items()
    )
    note(f"{source}: {'; '.join(counts)}")
    return records
