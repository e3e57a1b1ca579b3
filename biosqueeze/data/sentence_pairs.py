"""Pairs of segments for next-sentence prediction (NSP) and sentence order (SOP), drawn from tokenised documents."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.blocks import Ids
from biosqueeze.data.prepared import Documents
from biosqueeze.data.shards import Shard
from biosqueeze.errors import SqueezeError

PairKind = Literal["nsp", "sop"]

SHORT_SHARE = 0.1
"""The share of the documents whose pairs are shorter than the room (`short_seq_prob` of google-research/bert)."""
FIRST, SECOND = 0, 1
"""NSP: B follows A, or is from another document; SOP: the segments are in order, or swapped."""


class Pair(NamedTuple):
    """Two segments of text without special tokens."""

    first: Ids  # (tokens,)
    second: Ids  # (tokens,)
    label: int


@dataclass(frozen=True)
class SentenceGroups:
    """Sentences that follow each other in a document, as many as reach a target length; the end of one has fewer.

    Sentences are numbered over all shards.
    """

    starts: NDArray[np.int32]  # (groups,) first sentence
    ends: NDArray[np.int32]  # (groups,) sentence after the last
    targets: NDArray[np.int32]  # (groups,) tokens of a pair

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.starts)


def group_sentences(documents: Documents, room: int, seed: int, least: int = 1) -> SentenceGroups:
    """Divide documents into groups of sentences, as create_pretraining_data.py of google-research/bert does.

    A tenth of the documents has a random shorter target. There, a group whose second half was replaced gives it back to
    the next group; here the groups are fixed, and the second half is in a pair of another epoch.

    Args:
        documents: with their sentences.
        room: tokens in a pair, without special tokens; at least 2.
        seed: of the targets.
        least: sentences in a group; a document with fewer is left out.
    """
    rng = np.random.default_rng(seed)
    parts, offset = [], 0
    for shard in documents.corpus.shards:
        count = len(shard.blocks) - 1
        short = rng.random(count) < SHORT_SHARE
        targets = np.where(short, rng.integers(2, room + 1, size=count), room)
        starts, ends, owners = _groups_of(shard, targets, least)
        parts.append((starts + offset, ends + offset, targets[owners]))
        offset += len(shard.sequences) - 1
    return SentenceGroups(*(np.concatenate(arrays).astype(np.int32) for arrays in zip(*parts, strict=True)))


def _groups_of(shard: Shard, targets: Ids, least: int) -> tuple[Ids, Ids, Ids]:
    """Return first sentence, end, and document of each group, in the order of the text; (groups,) each.

    The next group of every document is found in one step, because there are far fewer groups in a document than
    documents.
    """
    edges, limits = shard.sequences, shard.blocks[1:]
    owners: Ids = np.flatnonzero(np.diff(shard.blocks) >= least)
    starts: Ids = shard.blocks[owners]
    found = [(starts[:0], starts[:0], owners[:0])]
    while len(owners):
        reached = np.searchsorted(edges, edges[starts] + targets[owners], side="left")
        ends = np.maximum(reached, starts + least)
        ends = np.where(limits[owners] - ends < least, limits[owners], ends)
        found.append((starts, ends, owners))
        left = ends < limits[owners]
        owners, starts = owners[left], ends[left]
    starts, ends, owners = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    order = np.argsort(starts)
    return starts[order], ends[order], owners[order]


@dataclass(frozen=True)
class SentencePairs:
    """Pairs of segments from documents, one for each group of sentences.

    Which pair a group gives (where it is split, which segment is second or first) is drawn from the generator alone.
    """

    documents: Documents
    groups: SentenceGroups
    room: int  # tokens of both segments together at most
    kind: PairKind

    @classmethod
    def of(cls, documents: Documents, room: int, kind: PairKind, seed: int) -> "SentencePairs":
        """Plan the pairs.

        Raises:
            SqueezeError: the room is too small, no document has two sentences, or (NSP) there is a single document.
        """
        if room < 2:
            raise SqueezeError(f"{room} tokens beside the special ones are too few for two segments; give 2 or more")
        if documents.sentences == len(documents):
            raise SqueezeError(
                f"pairs of sentences need documents of several sentences, and each of the {len(documents):,} documents "
                "is one line; write a sentence on each line and a blank line after each document, as `biosqueeze "
                "corpus` does"
            )
        if kind == "nsp" and len(documents) == 1:
            raise SqueezeError(
                "the second sentence of a pair is drawn from another document, and there is a single document; put a "
                "blank line after each document, as `biosqueeze corpus` does, or give more text"
            )
        # A single sentence has no order, so the last one of a document goes to the group before.
        return cls(documents, group_sentences(documents, room, seed, least=2 if kind == "sop" else 1), room, kind)

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.groups)

    def lengths_of(self, items: Ids) -> Ids:
        """Return the tokens of some pairs whose second segment follows the first, (items,)."""
        starts, ends = self.groups.starts[items], self.groups.ends[items]
        numbers = np.searchsorted(self._first_sentences, starts, side="right") - 1
        lengths = np.empty(len(items), dtype=np.int64)
        for number in np.unique(numbers):
            own, edges = numbers == number, self.documents.corpus.shards[number].sequences
            first = self._first_sentences[number]
            lengths[own] = edges[ends[own] - first] - edges[starts[own] - first]
        return np.minimum(lengths, self.room)

    def draw(self, item: int, rng: np.random.Generator) -> Pair:
        """Draw a pair of a group: NSP as google-research/bert, SOP as google-research/albert.

        NSP: in half of the pairs, and where the group is a single sentence, the second segment is replaced by one from
        a random other document, which is as long as the target allows. SOP: half of the pairs are swapped (ALBERT's
        code takes another document where the group is a single sentence, which no group is here). Segments that exceed
        the room lose tokens at random ends, the longer one first.
        """
        number = int(np.searchsorted(self._first_sentences, self.groups.starts[item], side="right")) - 1
        shard, offset = self.documents.corpus.shards[number], self._first_sentences[number]
        start, end = int(self.groups.starts[item] - offset), int(self.groups.ends[item] - offset)
        split = start + (1 if end - start == 1 else int(rng.integers(1, end - start)))
        label = SECOND if end - start == 1 else int(rng.random() < 0.5)
        first, second = (_sentences(shard, *span) for span in ((start, split), (split, end)))
        if label and self.kind == "nsp":
            own = int(np.searchsorted(shard.blocks, start, side="right")) - 1 + int(self._first_documents[number])
            second = self._other(own, max(1, int(self.groups.targets[item]) - len(first)), rng)
        elif label:
            first, second = second, first
        first, second = truncate(first, second, self.room, rng)
        return Pair(first, second, label)

    def _other(self, own: int, target: int, rng: np.random.Generator) -> Ids:
        """Return sentences of another document from a random one on, until they reach the target."""
        other = int(rng.integers(0, len(self.documents) - 1))
        other += other >= own
        number = int(np.searchsorted(self._first_documents, other, side="right")) - 1
        shard = self.documents.corpus.shards[number]
        row = other - int(self._first_documents[number])
        start = int(rng.integers(shard.blocks[row], shard.blocks[row + 1]))
        edges = shard.sequences[start : shard.blocks[row + 1] + 1]
        end = start + int(np.searchsorted(edges, edges[0] + target, side="left"))
        return _sentences(shard, start, min(end, int(shard.blocks[row + 1])))

    @cached_property
    def _first_sentences(self) -> Ids:
        """The number of the first sentence of each shard, (shards,)."""
        return np.cumsum([0, *(entry.sequences for entry in self.documents.corpus.entries)])[:-1]

    @cached_property
    def _first_documents(self) -> Ids:
        """The number of the first document of each shard, (shards,)."""
        return np.cumsum([0, *(entry.blocks for entry in self.documents.corpus.entries)])[:-1]

    def __str__(self) -> str:
        return f"{len(self):,} pairs of at most {self.room} tokens"


def _sentences(shard: Shard, start: int, end: int) -> Ids:
    return shard.ids[shard.sequences[start] : shard.sequences[end]].astype(np.int64)


def truncate(first: Ids, second: Ids, room: int, rng: np.random.Generator) -> tuple[Ids, Ids]:
    """Cut two segments to `room` tokens together: always the longer one, else the second, each time at a random end."""
    if len(first) + len(second) <= room:
        return first, second
    lengths = _truncated_lengths(len(first), len(second), room)
    return _cut(first, lengths[0], rng), _cut(second, lengths[1], rng)


def _cut(segment: Ids, length: int, rng: np.random.Generator) -> Ids:
    removed = len(segment) - length
    front = int(rng.binomial(removed, 0.5)) if removed else 0
    return segment[front : front + length]


def _truncated_lengths(first: int, second: int, room: int) -> tuple[int, int]:
    """Return the lengths after the tokens beyond the room, which there are, were cut one by one."""
    if min(first, second) <= room // 2:
        return (first, room - first) if first <= second else (room - second, second)
    return room - room // 2, room // 2
