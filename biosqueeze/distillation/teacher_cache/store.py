"""A teacher's answers on disk: Arrow files that are whole or not there, read through memory maps.

An answer is what was said about one item under one masking. It comes with a checksum of what was asked, so that it is
never taken for the answer to something else. A file is one record batch with a row for each answer; it gets its name
when it is whole, so a process that dies leaves nothing behind that anybody would read. Files are found by looking into
the folder: several processes may write into it.
"""

import contextlib
import os
import uuid
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from biosqueeze.data.collate import Features
from biosqueeze.progress import warn

Ids = NDArray[np.int64]
_PATTERN = "answers-*.arrow"
_ROW_BITS = 32  # of the 64 that say where an answer is; the others number the file


@dataclass(frozen=True)
class Entry:
    """What was said about an item under a masking."""

    masking: int
    item: int
    asked: int  # checksum of the features
    arrays: Features  # (rows, width) or (rows,), by name


def checksum(features: Features) -> int:
    """Of names and values of all features of an item."""
    found = 0
    for name in sorted(features):
        found = zlib.crc32(np.ascontiguousarray(features[name]).tobytes(), zlib.crc32(name.encode(), found))
    return found


@dataclass(frozen=True)
class _Column:
    starts: Ids  # (answers + 1,)
    values: NDArray[Any]  # (rows of all answers, width) or (rows of all answers,)


@dataclass(frozen=True)
class _Part:
    """One file."""

    maskings: Ids  # (answers,)
    items: Ids  # (answers,)
    asked: Ids  # (answers,)
    columns: Mapping[str, _Column]

    def entry(self, row: int) -> Entry:
        arrays = {name: c.values[c.starts[row] : c.starts[row + 1]] for name, c in self.columns.items()}
        return Entry(int(self.maskings[row]), int(self.items[row]), int(self.asked[row]), arrays)


class Store:
    """The answers in a folder. It is pickled as the folder: a worker process maps the files for itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._parts: list[_Part] = []
        self._seen: set[str] = set()
        self._where: dict[int, Ids] = {}  # by masking: 1 + (file << 32 | row) of each item, 0 where nothing was said
        self.refresh()

    def __reduce__(self) -> tuple[Any, ...]:
        return Store, (self.folder,)

    def refresh(self) -> None:
        """Open what was written since; what is damaged is deleted, with a warning.

        Raises:
            OSError: the folder or a file cannot be read.
        """
        for path in sorted(self.folder.glob(_PATTERN)):
            if path.name in self._seen:
                continue
            try:
                self._add(_open(path))
            except ValueError as error:
                warn(f"{path} is damaged ({error}); the teacher is asked again for what was in it")
                path.unlink(missing_ok=True)
            self._seen.add(path.name)

    def _add(self, part: _Part) -> None:
        rows = np.arange(len(part.items)) + (len(self._parts) << _ROW_BITS) + 1
        for masking in np.unique(part.maskings):
            here = part.maskings == masking
            items = part.items[here]
            where = self._where.get(int(masking), np.zeros(0, dtype=np.int64))
            if len(where) <= items.max():
                # Twice as long, so that many files cost no more than one; zeros that nobody writes take no memory.
                longer = np.zeros(2 * (int(items.max()) + 1), dtype=np.int64)
                longer[: len(where)] = where
                where = self._where[int(masking)] = longer
            where[items] = rows[here]
        self._parts.append(part)

    def has(self, masking: int, items: Ids) -> NDArray[np.bool_]:
        """Which of these items have an answer, (items,)."""
        where = self._where.get(masking, np.zeros(0, dtype=np.int64))
        found = np.zeros(len(items), dtype=bool)
        known = items < len(where)
        found[known] = where[items[known]] > 0
        return found

    def find(self, masking: int, item: int) -> Entry | None:
        """What was said about an item, in the memory map."""
        where = self._where.get(masking)
        if where is None or item >= len(where) or not where[item]:
            return None
        number, row = divmod(int(where[item]) - 1, 1 << _ROW_BITS)
        return self._parts[number].entry(row)

    def write(self, entries: Sequence[Entry]) -> None:
        """Add answers as one file.

        Raises:
            OSError: the disk is full.
        """
        path = self.folder / _PATTERN.replace("*", uuid.uuid4().hex[:16])
        partial = path.with_suffix(".partial")
        try:
            _write(partial, _batch(entries))
            partial.rename(path)
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
        self.refresh()

    def clean(self) -> None:
        """Delete what a process that was killed has left half-written; no other may be writing."""
        for path in self.folder.glob(_PATTERN.replace(".arrow", ".partial")):
            path.unlink(missing_ok=True)

    def __len__(self) -> int:
        """How many answers there are."""
        return sum(len(part.items) for part in self._parts)

    @property
    def bytes(self) -> int:
        """What they take on the disk."""
        return sum(path.stat().st_size for path in self.folder.glob(_PATTERN))


def _batch(entries: Sequence[Entry]) -> pa.RecordBatch:
    columns = {
        "masking": np.array([entry.masking for entry in entries], dtype=np.int64),
        "item": np.array([entry.item for entry in entries], dtype=np.int64),
        "asked": np.array([entry.asked for entry in entries], dtype=np.int64),
        **{name: _list([entry.arrays[name] for entry in entries]) for name in entries[0].arrays},
    }
    return pa.record_batch(list(map(pa.array, columns.values())), names=list(columns))


def _list(arrays: Sequence[NDArray[Any]]) -> pa.LargeListArray:
    """A list of rows for each answer; a row is a number, or a list of a fixed length."""
    joined = np.concatenate(arrays)
    values = pa.array(joined.ravel())
    if joined.ndim > 1:
        values = pa.FixedSizeListArray.from_arrays(values, joined.shape[1])
    return pa.LargeListArray.from_arrays(np.cumsum([0, *map(len, arrays)]), values)


def _write(path: Path, batch: pa.RecordBatch) -> None:
    with path.open("wb") as file:
        with pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
        file.flush()
        os.fsync(file.fileno())


def _open(path: Path) -> _Part:
    """Map a file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not what was written.
    """
    path.open("rb").close()  # what fails from here on is the content, of which Arrow also complains by OSError
    try:
        with pa.memory_map(str(path)) as file:
            batch = pa.ipc.open_file(file).get_batch(0)
        maskings, items, asked = (_numbers(batch.column(name)) for name in ("masking", "item", "asked"))
        names = [name for name in batch.schema.names if name not in ("masking", "item", "asked")]
        return _Part(maskings, items, asked, {name: _column(batch.column(name)) for name in names})
    except (OSError, KeyError, AttributeError, pa.ArrowException) as error:
        raise ValueError(" ".join(str(error).split())) from error


def _numbers(array: Any) -> NDArray[Any]:
    numbers: NDArray[Any] = array.to_numpy(zero_copy_only=True)
    return numbers


def _column(lists: pa.LargeListArray) -> _Column:
    starts, rows = _numbers(lists.offsets), lists.values
    if starts[0] != 0 or (np.diff(starts) < 0).any() or starts[-1] != len(rows):
        raise ValueError("its rows do not add up")
    if pa.types.is_fixed_size_list(rows.type):
        return _Column(starts, _numbers(rows.values).reshape(len(rows), rows.type.list_size))
    return _Column(starts, _numbers(rows))
