"""Teacher outputs on disk: Arrow files that appear only when they are complete, read through memory maps.

A cached output belongs to one item under one masking. A checksum of the item's features is stored with it, so that it
is never used for other features. A file is one record batch with a row for each output. It is renamed when it is
complete, so a process that is killed leaves no partial file behind that would be read. Files are found by listing the
folder: several processes may write into it.
"""

import contextlib
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
from biosqueeze.data.text.shards import write_batch
from biosqueeze.errors import in_one_line
from biosqueeze.files import rename
from biosqueeze.progress import warn

Ids = NDArray[np.int64]
_PATTERN = "outputs-*.arrow"
_KEYS = ("masking", "item", "checksum")
_ROW_BITS = 32  # low bits of an address: the row; high bits: the number of the file


@dataclass(frozen=True)
class CachedOutput:
    """The teacher's outputs for an item under a masking."""

    masking: int
    item: int
    checksum: int  # of the features
    arrays: Features  # (rows, width) or (rows,), by name


def checksum(features: Features) -> int:
    """Compute the CRC-32 of the names and values of an item's features."""
    crc = 0
    for name in sorted(features):
        crc = zlib.crc32(np.ascontiguousarray(features[name]).tobytes(), zlib.crc32(name.encode(), crc))
    return crc


@dataclass(frozen=True)
class _Column:
    """One array of all outputs of a file, concatenated."""

    starts: Ids  # (outputs + 1,)
    values: NDArray[Any]  # (rows of all outputs, width) or (rows of all outputs,)


@dataclass(frozen=True)
class _StoreFile:
    """The content of one file."""

    maskings: Ids  # (outputs,)
    items: Ids  # (outputs,)
    checksums: Ids  # (outputs,)
    columns: Mapping[str, _Column]

    def output(self, row: int) -> CachedOutput:
        arrays = {name: c.values[c.starts[row] : c.starts[row + 1]] for name, c in self.columns.items()}
        return CachedOutput(int(self.maskings[row]), int(self.items[row]), int(self.checksums[row]), arrays)


class CacheStore:
    """The outputs in a folder. Pickled as the path of the folder: a worker process maps the files itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: list[_StoreFile] = []
        self._opened: set[str] = set()
        self._addresses: dict[int, Ids] = {}  # by masking: 1 + (file << 32 | row) of each item, 0 where it is missing
        self.refresh()

    def __reduce__(self) -> tuple[Any, ...]:
        return CacheStore, (self.folder,)

    def refresh(self) -> None:
        """Open files that were added since; delete damaged ones with a warning.

        Raises:
            OSError: the folder or a file cannot be read.
        """
        for path in sorted(self.folder.glob(_PATTERN)):
            if path.name in self._opened:
                continue
            try:
                self._add(_open(path))
            except ValueError as error:
                warn(f"{path} is damaged ({error}); its teacher outputs are computed again")
                path.unlink(missing_ok=True)
            self._opened.add(path.name)

    def _add(self, file: _StoreFile) -> None:
        """Index the outputs of a file."""
        rows = np.arange(len(file.items)) + (len(self._files) << _ROW_BITS) + 1
        for masking in np.unique(file.maskings):
            selected = file.maskings == masking
            items = file.items[selected]
            addresses = self._addresses.get(int(masking), np.zeros(0, dtype=np.int64))
            if len(addresses) <= items.max():
                # Doubled, so that many files cost no more than one; zero pages that are never written take no memory.
                longer = np.zeros(2 * (int(items.max()) + 1), dtype=np.int64)
                longer[: len(addresses)] = addresses
                addresses = self._addresses[int(masking)] = longer
            addresses[items] = rows[selected]
        self._files.append(file)

    def has(self, masking: int, items: Ids) -> NDArray[np.bool_]:
        """Return which of these items are stored under a masking, (items,)."""
        addresses = self._addresses.get(masking, np.zeros(0, dtype=np.int64))
        stored = np.zeros(len(items), dtype=bool)
        indexed = items < len(addresses)
        stored[indexed] = addresses[items[indexed]] > 0
        return stored

    def find(self, masking: int, item: int) -> CachedOutput | None:
        """Return the outputs for an item under a masking, as views of the memory map."""
        addresses = self._addresses.get(masking)
        if addresses is None or item >= len(addresses) or not addresses[item]:
            return None
        number, row = divmod(int(addresses[item]) - 1, 1 << _ROW_BITS)
        return self._files[number].output(row)

    def write(self, outputs: Sequence[CachedOutput]) -> None:
        """Add outputs as one file.

        Raises:
            OSError: the disk is full.
        """
        path = self.folder / _PATTERN.replace("*", uuid.uuid4().hex[:16])
        partial = path.with_suffix(".partial")
        try:
            write_batch(partial, _batch(outputs))
            rename(partial, path)
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
        self.refresh()

    def clean(self) -> None:
        """Delete partial files of killed processes; no other process may be writing."""
        for path in self.folder.glob(_PATTERN.replace(".arrow", ".partial")):
            path.unlink(missing_ok=True)

    def __len__(self) -> int:
        """Return the number of outputs."""
        return sum(len(file.items) for file in self._files)

    @property
    def bytes(self) -> int:
        """Their size on the disk."""
        return sum(path.stat().st_size for path in self.folder.glob(_PATTERN))


def _batch(outputs: Sequence[CachedOutput]) -> pa.RecordBatch:
    columns = {
        **{key: np.array([getattr(output, key) for output in outputs], dtype=np.int64) for key in _KEYS},
        **{name: _list([output.arrays[name] for output in outputs]) for name in outputs[0].arrays},
    }
    return pa.record_batch(list(map(pa.array, columns.values())), names=list(columns))


def _list(arrays: Sequence[NDArray[Any]]) -> pa.LargeListArray:
    """Build a list of rows for each output; a row is a number, or a list of a fixed length."""
    joined = np.concatenate(arrays)
    values = pa.array(joined.ravel())
    if joined.ndim > 1:
        values = pa.FixedSizeListArray.from_arrays(values, joined.shape[1])
    return pa.LargeListArray.from_arrays(np.cumsum([0, *map(len, arrays)]), values)


def _open(path: Path) -> _StoreFile:
    """Map a file.

    Raises:
        OSError: it cannot be read.
        ValueError: its content is damaged.
    """
    path.open("rb").close()  # errors from here on are about the content; Arrow raises OSError for that too
    try:
        with pa.memory_map(str(path)) as file:
            batch = pa.ipc.open_file(file).get_batch(0)
        maskings, items, checksums = (_numbers(batch.column(name)) for name in _KEYS)
        names = [name for name in batch.schema.names if name not in _KEYS]
        return _StoreFile(maskings, items, checksums, {name: _column(batch.column(name)) for name in names})
    except (OSError, KeyError, AttributeError, pa.ArrowException) as error:
        raise ValueError(in_one_line(error)) from error


def _numbers(array: Any) -> NDArray[Any]:
    numbers: NDArray[Any] = array.to_numpy(zero_copy_only=True)
    return numbers


def _column(lists: pa.LargeListArray) -> _Column:
    starts, rows = _numbers(lists.offsets), lists.values
    if starts[0] != 0 or (np.diff(starts) < 0).any() or starts[-1] != len(rows):
        raise ValueError("its row offsets are inconsistent")
    if pa.types.is_fixed_size_list(rows.type):
        return _Column(starts, _numbers(rows.values).reshape(len(rows), rows.type.list_size))
    return _Column(starts, _numbers(rows))
