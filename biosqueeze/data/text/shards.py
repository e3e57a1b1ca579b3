"""Token ids in memory-mapped Arrow files: opening one takes constant time, whatever its size.

A shard is one record batch, and each of its rows is a block: a list of texts, each a list of token ids without
special tokens. A block is contiguous on disk, and any Arrow reader can read the file. Where documents are stored whole,
each row is a document, and its texts are sentences.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from biosqueeze.data.text.blocks import EncodedLines, Ids
from biosqueeze.data.text.packing import Packing, pack

SHARD_TOKENS = 1 << 24  # 32 MB of 2-byte ids; writing a shard needs about ten times this memory


@dataclass(frozen=True)
class ShardLayout:
    """The sizes that determine how token ids are stored."""

    length: int  # positions in a block, special tokens included
    special: int  # special tokens of each text
    vocabulary: int  # upper bound of the ids, exclusive

    @property
    def dtype(self) -> type[np.integer]:
        """The smallest type for every id."""
        return np.uint16 if self.vocabulary <= 1 << 16 else np.int32


@dataclass(frozen=True)
class ShardEntry:
    """The metadata of a shard, known without opening it."""

    name: str
    bytes: int
    texts: int
    blocks: int
    sequences: int
    tokens: int  # without special tokens
    sha256: str  # of the content, independent of the file format


@dataclass(frozen=True)
class Shard:
    """The arrays of a shard, in the memory map."""

    ids: NDArray[np.integer]  # (tokens,)
    sequences: Ids  # (sequences + 1,) start of each in `ids`
    blocks: Ids  # (blocks + 1,) start of each in `sequences`


def write_shards(folder: Path, parts: Iterable[EncodedLines], layout: ShardLayout) -> list[ShardEntry]:
    """Write tokens to as many shards as needed, each packed separately if at all; one shard is in memory at a time.

    Raises:
        OSError: the disk is full.
    """
    return [
        _write(folder / f"tokens-{number:05d}.arrow", group, layout)
        for number, group in enumerate(_grouped(parts, layout.dtype))
    ]


def _grouped(parts: Iterable[EncodedLines], dtype: type[np.integer]) -> Iterator[list[EncodedLines]]:
    """Group the parts of each shard."""
    group: list[EncodedLines] = []
    for part in parts:
        group.append(replace(part, ids=part.ids.astype(dtype)))
        if sum(len(p.ids) for p in group) >= SHARD_TOKENS:
            yield group
            group = []
    if any(len(part.ids) for part in group):
        yield group


def _write(path: Path, parts: list[EncodedLines], layout: ShardLayout) -> ShardEntry:
    sizes = np.concatenate([part.sizes for part in parts])  # (sequences,)
    ids = np.concatenate([part.ids for part in parts])  # (tokens,)
    packing = _in_order(parts) or pack(sizes + layout.special, layout.length)
    sequences = pa.LargeListArray.from_arrays(np.concatenate([[0], np.cumsum(sizes)]), pa.array(ids))
    blocks = pa.LargeListArray.from_arrays(packing.starts, sequences.take(pa.array(packing.order)))
    batch = pa.record_batch([blocks], names=["texts"])
    write_batch(path, batch)
    texts = sum(part.texts for part in parts)
    digest = hashlib.sha256()
    for array in (ids, sizes, packing.starts, packing.order):
        digest.update(np.ascontiguousarray(array).data)
    return ShardEntry(path.name, path.stat().st_size, texts, len(blocks), len(sizes), len(ids), digest.hexdigest())


def write_batch(path: Path, batch: pa.RecordBatch) -> None:
    """Write a file of Arrow's with one batch, and flush it to the disk."""
    with path.open("wb") as file:
        with pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
        file.flush()
        os.fsync(file.fileno())


def _in_order(parts: list[EncodedLines]) -> Packing | None:
    """Return the rows that the parts prescribe; None if they prescribe none."""
    rows = [part.rows for part in parts if part.rows is not None]
    if not rows:
        return None
    starts = np.concatenate([[0], np.cumsum(np.concatenate(rows))])
    return Packing(np.arange(starts[-1]), starts)


def open_shard(path: Path, entry: ShardEntry) -> Shard:
    """Map a shard into memory.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, or does not match its entry.
    """
    if path.stat().st_size != entry.bytes:
        raise ValueError(f"{path} has {path.stat().st_size:,} bytes and not {entry.bytes:,}")
    with pa.memory_map(str(path)) as file:
        blocks = pa.ipc.open_file(file).get_batch(0).column("texts")
    sequences = blocks.values
    shard = Shard(*(a.to_numpy(zero_copy_only=True) for a in (sequences.values, sequences.offsets, blocks.offsets)))
    counts = (len(shard.blocks) - 1, len(shard.sequences) - 1, len(shard.ids))
    if counts != (entry.blocks, entry.sequences, entry.tokens):
        raise ValueError(f"{path} does not hold the blocks, sequences and tokens of its entry")
    return shard
