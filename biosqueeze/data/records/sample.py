"""The beginning of a data source: its first records, to recognise the task that it is for without reading it all."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from biosqueeze.data.lines import data_suffix, read_beginning
from biosqueeze.data.records import hub
from biosqueeze.data.records.record import DataRecord
from biosqueeze.data.records.splits import (
    DATA_SUFFIXES,
    SPLITS,
    SUFFIXES,
    has_split_word,
    open_directory,
    split_files,
    split_folders,
    splits_named,
    splits_within,
)
from biosqueeze.data.records.tables import are_columns, as_record, is_json_lines, parse_records, splits_of
from biosqueeze.errors import SqueezeError

RECORDS = 20  # records, sentences or documents of a sample
_CHARACTERS = 1 << 20  # of a file; enough for as many full articles
_MOST_FILES = 3  # in a message
_GOLDEN = "golden"  # in the names of BioASQ's test files, which have no other sign of their split
_LIST_ITEM = re.compile(r"\s*,?\s*()")
_OBJECT_ITEM = re.compile(r'\s*,?\s*"((?:[^"\\]|\\.)*)"\s*:\s*')


@dataclass(frozen=True)
class SourceSample:
    """The beginning of a data source."""

    source: str
    path: Path | None = None  # the sampled file of a directory; None for other sources, and without a file of a split
    text: str = ""  # the beginning of that file
    saved: tuple[DataRecord, ...] = ()  # the first records of a data set of the `datasets` package

    @cached_property
    def lines(self) -> list[tuple[int, str]]:
        """The whole lines of the text with their numbers; those of a .csv with their carriage returns."""
        is_csv = self.path is not None and data_suffix(self.path) == ".csv"
        lines = [line if is_csv else line.rstrip("\r") for line in self.text.split("\n")]
        return list(enumerate(lines[:-1] if self._truncated else lines, start=1))

    @property
    def directory(self) -> Path | None:
        """The directory of a source that is one."""
        directory = Path(self.source).expanduser()
        return directory if not hub.is_hub(self.source) and directory.is_dir() else None

    @cached_property
    def is_named_as_split(self) -> bool:
        """Whether the sampled file is found as a split by its name or folder: train.tsv, and not NCBItrainset.txt."""
        return self.directory is not None and self.path == _first_split(self.directory)

    def records(self, header: Sequence[str] = ()) -> list[DataRecord]:
        """Return the first records as `tables.read_records` would; [] for files that it does not read.

        Args:
            header: names that mark a header, as for `tables.read_records`.

        Raises:
            SqueezeError: one of them is malformed.
        """
        if self.path is None or not self.is_named_as_split or data_suffix(self.path) not in SUFFIXES:
            return list(self.saved)
        if data_suffix(self.path) == ".json" and not self._has_json_lines:
            return _json_records(self.text, self.path)
        records: list[DataRecord] = []
        try:
            records.extend(islice(parse_records(self.lines, self.path, header), RECORDS))
        except SqueezeError:
            if not self._truncated:
                raise
        return records

    @property
    def _truncated(self) -> bool:
        return len(self.text) >= _CHARACTERS

    @property
    def _has_json_lines(self) -> bool:
        return is_json_lines([line for _, line in self.lines])


def take_sample(source: str) -> SourceSample:
    """Read the beginning of a data source: of one file of a directory, or the first records of a `datasets` data set.

    Args:
        source: a directory, also one that `datasets` saved or with Parquet files, hub:NAME, or the name of generated
            data (demo:ner).

    Raises:
        SqueezeError: there is no such source, or it cannot be read.
    """
    if source.startswith("demo:"):
        return SourceSample(source)
    if hub.is_hub_or_saved(source):
        return SourceSample(source, saved=tuple(hub.first_records(source, RECORDS)))
    path = _sampled_file(open_directory(source))
    return SourceSample(source, path, read_beginning(path, _CHARACTERS) if path else "")


def available_splits(source: str) -> tuple[str, ...]:
    """Return the splits of a data source by the names of its files; all if these show none.

    Raises:
        SqueezeError: there is no such source.
    """
    if source.startswith("demo:"):
        return SPLITS
    if hub.is_hub_or_saved(source):
        return splits_of(source) or SPLITS
    return splits_named(open_directory(source)) or SPLITS


def file_problems(directory: Path) -> str:
    """Return why no file of a directory is read as a split of a data set, for messages; "" if it is empty."""
    problems = []
    of_splits = [folder.name for split in SPLITS for folder in split_folders(directory, split)]
    folders = [path.name for path in sorted(directory.iterdir()) if path.is_dir()][:_MOST_FILES]
    if of_splits:
        problems.append(f"{' and '.join(of_splits)} hold no annotated documents, and several files each: join them")
    elif folders:
        problems.append(f"it holds the folders {', '.join(folders)}: name one, such as {directory / folders[0]}")
    for path in sorted(path for path in directory.iterdir() if path.is_file())[:_MOST_FILES]:
        if data_suffix(path) not in DATA_SUFFIXES:
            problems.append(f"{path.name} has none of the suffixes {', '.join(DATA_SUFFIXES)}")
        else:
            problems.append(f"{path.name} has none of {', '.join(SPLITS)} in its name")
    return "; ".join(problems)


def _sampled_file(directory: Path) -> Path | None:
    """Return the file of the first split, or else the first file that mentions one in its name."""
    if first := _first_split(directory):
        return first
    files = [path for path in sorted(directory.iterdir()) if path.is_file() and data_suffix(path) in DATA_SUFFIXES]
    files.sort(key=lambda path: DATA_SUFFIXES.index(data_suffix(path)))
    for matches in (has_split_word, _is_within):
        for split in SPLITS:
            for path in files:
                if matches(path.name, split):
                    return path
    return next((path for path in files if _GOLDEN in path.name.lower()), None)


def _first_split(directory: Path) -> Path | None:
    return next((files[0] for split in SPLITS if (files := split_files(directory, split, DATA_SUFFIXES))), None)


def _is_within(name: str, split: str) -> bool:
    return splits_within(name) == (split,)


def _json_records(text: str, path: Path) -> list[DataRecord]:
    """Parse the first records of a JSON list, or of an object of records by id; [] if its items are not records.

    The columns of a table are none, which `tables.read_records` explains.
    """
    try:
        items = [(key, as_record(item, str(path))) for key, item in islice(_leading_items(text), RECORDS)]
    except SqueezeError:
        return []
    if are_columns([item for key, item in items if key]):
        return []
    return [DataRecord(str(path), {**item, "id": key} if key else item) for key, item in items]


def _leading_items(text: str) -> Iterator[tuple[str, Any]]:
    """Decode the items of a JSON list or object up to the end of the text, which may be within one of them."""
    decoder = json.JSONDecoder()
    start = len(text) - len(text.lstrip())
    item = {"[": _LIST_ITEM, "{": _OBJECT_ITEM}.get(text[start : start + 1])
    position = start + 1
    while item is not None and (match := item.match(text, position)):
        try:
            value, position = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            return
        yield match[1], value
