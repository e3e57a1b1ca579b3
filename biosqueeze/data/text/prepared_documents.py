"""The documents of a prepared corpus: where each sentence and each document starts, over all shards."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from biosqueeze.data.text.blocks import Ids
from biosqueeze.data.text.prepared_corpus import Corpus
from biosqueeze.data.text.shards import ShardEntry, open_shard
from biosqueeze.progress import counted

_EDGES, _STARTS = "sentences.npy", "documents.npy"


@dataclass(frozen=True)
class Documents:
    """Documents, each with its sentences; both are numbered over all shards. The arrays are mapped into memory."""

    corpus: Corpus

    def __reduce__(self) -> tuple[Any, ...]:
        return Documents, (self.corpus,)

    def __len__(self) -> int:
        """Return the number of documents."""
        return sum(entry.blocks for entry in self.corpus.entries)

    @property
    def sentences(self) -> int:
        """The number of sentences."""
        return sum(entry.sequences for entry in self.corpus.entries)

    @cached_property
    def edges(self) -> Ids:
        """The number of tokens before each sentence, and of all, (sentences + 1,)."""
        return self._mapped(_EDGES, self.sentences + 1)

    @cached_property
    def starts(self) -> Ids:
        """The first sentence of each document, and the end of the last, (documents + 1,)."""
        return self._mapped(_STARTS, len(self) + 1)

    @cached_property
    def _shard_starts(self) -> Ids:
        """The number of tokens before each shard, (shards,)."""
        return np.cumsum([0, *(entry.tokens for entry in self.corpus.entries)])[:-1]

    def tokens(self, start: int, end: int) -> Ids:
        """Return the ids of the sentences from `start` to before `end`, which are in one document."""
        first, last = int(self.edges[start]), int(self.edges[end])
        number = int(np.searchsorted(self._shard_starts, first, side="right")) - 1
        offset = int(self._shard_starts[number])
        return self.corpus.shards[number].ids[first - offset : last - offset].astype(np.int64)

    def check(self) -> None:
        """Open the arrays.

        Raises:
            OSError: one cannot be read.
            ValueError: one is damaged.
        """
        for array in (self.edges, self.starts):
            if np.any(array[:1]):
                raise ValueError(f"the index of {self.corpus.folder} does not start at 0")

    def _mapped(self, name: str, size: int) -> Ids:
        try:
            array: Ids = np.load(self.corpus.folder / name, mmap_mode="r")
        except EOFError as error:
            raise ValueError(f"{self.corpus.folder / name} is empty") from error
        if array.shape != (size,):
            raise ValueError(f"{self.corpus.folder / name} has {array.shape} entries and not {size}")
        return array.view(np.ndarray)

    def __str__(self) -> str:
        return f"{counted(len(self), 'document')} of {counted(self.sentences, 'sentence')}"


def write_document_index(folder: Path, entries: Sequence[ShardEntry]) -> None:
    """Write where sentences and documents start, one shard at a time.

    Raises:
        OSError: the disk is full.
    """
    tokens = sentences = 0
    with (
        _created(folder / _EDGES, 1 + sum(entry.sequences for entry in entries)) as edges,
        _created(folder / _STARTS, 1 + sum(entry.blocks for entry in entries)) as starts,
    ):
        for entry in entries:
            shard = open_shard(folder / entry.name, entry)
            edges.write((shard.sequences[:-1] + tokens).tobytes())
            starts.write((shard.blocks[:-1] + sentences).tobytes())
            tokens, sentences = tokens + entry.tokens, sentences + entry.sequences
        edges.write(np.int64(tokens).tobytes())
        starts.write(np.int64(sentences).tobytes())


@contextmanager
def _created(path: Path, size: int) -> Iterator[BinaryIO]:
    """Create a file for an array of int64 (size,), whose entries the body writes, and flush it to the disk.

    On a full disk, a process that writes to a file mapped into memory would be killed.
    """
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(np.int64)), "fortran_order": False, "shape": (size,)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        yield file
        file.flush()
        os.fsync(file.fileno())
