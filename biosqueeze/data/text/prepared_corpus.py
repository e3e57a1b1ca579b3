"""A prepared corpus on the disk, mapped into memory: its shards, single sequences, and blocks of several."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from biosqueeze.data.text.blocks import Frame, Ids
from biosqueeze.data.text.packing import lay_out
from biosqueeze.data.text.shards import Shard, ShardEntry, open_shard
from biosqueeze.errors import SqueezeError
from biosqueeze.files import read_json

FACTS = "corpus.json"
"""The file beside the shards: their length, frame and sizes."""


@dataclass(frozen=True)
class Corpus:
    """A folder of shards. It is pickled as its path; each worker process maps the shards itself."""

    folder: Path
    length: int  # positions in a block, and the longest sequence; 0 where the rows are whole documents
    frame: Frame
    entries: tuple[ShardEntry, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return open_corpus, (self.folder,)

    @cached_property
    def shards(self) -> tuple[Shard, ...]:
        """The shards, opened."""
        return tuple(open_shard(self.folder / entry.name, entry) for entry in self.entries)

    @property
    def texts(self) -> int:
        """The number of lines."""
        return sum(entry.texts for entry in self.entries)

    @property
    def tokens(self) -> int:
        """The number of tokens, with the special tokens of each sequence."""
        return sum(entry.tokens + entry.sequences * len(self.frame) for entry in self.entries)


def open_corpus(folder: Path) -> Corpus:
    """Open a corpus that `prepare_corpus` stored.

    Raises:
        SqueezeError: it is missing or damaged.
    """
    try:
        facts = read_json(folder / FACTS)
        frame = Frame(*(np.array(facts[side], dtype=np.int64) for side in ("before", "after")))
        return Corpus(folder, int(facts["length"]), frame, tuple(ShardEntry(**entry) for entry in facts["shards"]))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise SqueezeError(
            f"the prepared corpus {folder} is missing or damaged ({error}); run the command again"
        ) from error


@dataclass(frozen=True)
class Sequences:
    """The single sequences of a corpus, in the order of the blocks."""

    corpus: Corpus

    def __len__(self) -> int:
        """Return the number of sequences."""
        return int(self._starts[-1])

    @cached_property
    def _starts(self) -> Ids:
        return np.cumsum([0, *(entry.sequences for entry in self.corpus.entries)])  # (shards + 1,)

    def lengths_of(self, items: Ids) -> Ids:
        """Return the lengths of some sequences with their special tokens, (items,)."""
        numbers = np.searchsorted(self._starts, items, side="right") - 1
        lengths = np.empty(len(items), dtype=np.int64)
        for number in np.unique(numbers):
            in_shard = numbers == number
            rows, edges = items[in_shard] - self._starts[number], self.corpus.shards[number].sequences
            lengths[in_shard] = edges[rows + 1] - edges[rows]
        return lengths + len(self.corpus.frame)

    def features(self, item: int) -> dict[str, Ids]:
        """Return the `input_ids` (length,) of one sequence with its special tokens."""
        shard, row = _find(self.corpus, self._starts, item)
        return {"input_ids": self.corpus.frame.around(shard.ids[shard.sequences[row] : shard.sequences[row + 1]])}

    def __str__(self) -> str:
        return f"{len(self):,} sequences of at most {self.corpus.length}"


@dataclass(frozen=True)
class Packed:
    """The blocks of a corpus, all of one length, each with several whole sequences."""

    corpus: Corpus
    pad_token_id: int

    def __len__(self) -> int:
        """Return the number of blocks."""
        return int(self._starts[-1])

    @cached_property
    def _starts(self) -> Ids:
        return np.cumsum([0, *(entry.blocks for entry in self.corpus.entries)])  # (shards + 1,)

    def lengths_of(self, items: Ids) -> Ids:
        """Return the lengths of some blocks, (items,), which are all equal."""
        return np.full(len(items), self.corpus.length)

    def features(self, item: int) -> dict[str, Ids]:
        """Return the `input_ids`, `positions` and `segments` of one block, (length,) each; see `packing.lay_out`."""
        shard, row = _find(self.corpus, self._starts, item)
        edges = shard.sequences[shard.blocks[row] : shard.blocks[row + 1] + 1]
        tokens = shard.ids[edges[0] : edges[-1]]
        return lay_out(tokens, edges, self.corpus.frame, self.corpus.length, self.pad_token_id)

    @property
    def padding(self) -> float:
        """The share of padding in all positions."""
        return 1 - self.corpus.tokens / (len(self) * self.corpus.length)

    def __str__(self) -> str:
        return f"packed into {len(self):,} blocks of {self.corpus.length} ({self.padding:.2%} padding)"


def _find(corpus: Corpus, starts: Ids, item: int) -> tuple[Shard, int]:
    """Return the shard that holds an item, and the row of the item in it."""
    if not 0 <= item < starts[-1]:
        raise IndexError(item)
    number = int(np.searchsorted(starts, item, side="right")) - 1
    return corpus.shards[number], item - int(starts[number])
