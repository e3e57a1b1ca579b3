"""Token ids in Arrow files that are read through a memory map: opening one costs nothing, whatever its size.

A shard is one record batch, and each of its rows is a block: a list of texts, each a list of token ids without
special tokens. So a block lies in one piece on the disk, and any Arrow reader understands the file.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from biosqueeze.data.blocks import EncodedLines, Ids
from biosqueeze.data.packing import pack

SHARD_TOKENS = 1 << 24  # 32 MB of 2-byte ids; writing one takes some ten times that


@dataclass(frozen=True)
class ShardLayout:
    """How token ids are laid out."""

    length: int  # positions in a block, special tokens included
    special: int  # special tokens that each text costs
    vocabulary: int  # ids are smaller

    @property
    def dtype(self) -> type[np.integer]:
        """The smallest type that holds every id."""
        return np.uint16 if self.vocabulary <= 1 << 16 else np.int32


@dataclass(frozen=True)
class ShardEntry:
    """What is known of a shard without opening it."""

    name: str
    bytes: int
    texts: int
    blocks: int
    sequences: int
    tokens: int  # without special tokens
    sha256: str  # of what it holds, whatever the format


@dataclass(frozen=True)
class Shard:
    """A shard's arrays, in the memory map."""

    ids: NDArray[np.integer]  # (tokens,)
    sequences: Ids  # (sequences + 1,) where each starts in `ids`
    blocks: Ids  # (blocks + 1,) where each starts in `sequences`


def write_shards(folder: Path, parts: Iterable[EncodedLines], shape: ShardLayout) -> list[ShardEntry]:
    """Write tokens to as many shards as they take, packing each on its own; one shard is in memory at a time.

    Raises:
        OSError: the disk is full.
    """
    return [
        _write(folder / f"tokens-{number:05d}.arrow", gathered, shape)
        for number, gathered in enumerate(_gathered(parts, shape.dtype))
    ]


def _gathered(parts: Iterable[EncodedLines], dtype: type[np.integer]) -> Iterator[list[EncodedLines]]:
    """Parts that make a shard together."""
    gathered: list[EncodedLines] = []
    for part in parts:
        gathered.append(replace(part, ids=part.ids.astype(dtype)))
        if sum(len(p.ids) for p in gathered) >= SHARD_TOKENS:
            yield gathered
            gathered = []
    if any(len(part.ids) for part in gathered):
        yield gathered


def _write(path: Path, parts: list[EncodedLines], shape: ShardLayout) -> ShardEntry:
    sizes = np.concatenate([part.sizes for part in parts])  # (sequences,)
    ids = np.concatenate([part.ids for part in parts])  # (tokens,)
    packing = pack(sizes + shape.special, shape.length)
    sequences = pa.LargeListArray.from_arrays(np.concatenate([[0], np.cumsum(sizes)]), pa.array(ids))
    blocks = pa.LargeListArray.from_arrays(packing.starts, sequences.take(pa.array(packing.order)))
    batch = pa.record_batch([blocks], names=["texts"])
    with path.open("wb") as file:
        with pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
        file.flush()
        os.fsync(file.fileno())
    texts = sum(part.texts for part in parts)
    digest = hashlib.sha256()
    for array in (ids, sizes, packing.starts, packing.order):
        digest.update(np.ascontiguousarray(array).data)
    return ShardEntry(path.name, path.stat().st_size, texts, len(blocks), len(sizes), len(ids), digest.hexdigest())


def open_shard(path: Path, entry: ShardEntry) -> Shard:
    """Map a shard into memory.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, or another one than the entry describes.
    """
    if path.stat().st_size != entry.bytes:
        raise ValueError(f"{path} has {path.stat().st_size:,} bytes and not {entry.bytes:,}")
    with pa.memory_map(str(path)) as file:
        blocks = pa.ipc.open_file(file).get_batch(0).column("texts")
    sequences = blocks.values
    shard = Shard(*(a.to_numpy(zero_copy_only=True) for a in (sequences.values, sequences.offsets, blocks.offsets)))
    found = (len(shard.blocks) - 1, len(shard.sequences) - 1, len(shard.ids))
    if found != (entry.blocks, entry.sequences, entry.tokens):
        raise ValueError(f"{path} does not hold what it should")
    return shard
