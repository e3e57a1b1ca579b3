"""Pairs of segments for next-sentence prediction (NSP) and sentence order (SOP), drawn from tokenised documents."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.splitmix import splitmix64
from biosqueeze.data.text.blocks import Ids
from biosqueeze.data.text.prepared_documents import Documents
from biosqueeze.errors import SqueezeError

Floats = NDArray[np.float64]
PairKind = Literal["nsp", "sop"]

SHORT_SHARE = 0.1
"""The share of the documents whose pairs are shorter than the room (`short_seq_prob` of google-research/bert)."""
_DOCUMENTS_AT_ONCE = 1 << 20
_GAMMA = 0x9E3779B97F4A7C15


class Pair(NamedTuple):
    """Two segments of text without special tokens."""

    first: Ids  # (tokens,)
    second: Ids  # (tokens,)
    label: int  # NSP: 1 where the second is from another document; SOP: 1 where the two are swapped


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
    parts = []
    for first in range(0, len(documents), _DOCUMENTS_AT_ONCE):
        starts = np.array(documents.starts[first : first + _DOCUMENTS_AT_ONCE + 1])
        short = rng.random(len(starts) - 1) < SHORT_SHARE
        targets = np.where(short, rng.integers(2, room + 1, size=len(short)), room)
        parts.append(_groups_of(documents.edges, starts, targets, least))
    return SentenceGroups(*(np.concatenate(arrays).astype(np.int32) for arrays in zip(*parts, strict=True)))


def _groups_of(edges: Ids, documents: Ids, targets: Ids, least: int) -> tuple[Ids, Ids, Ids]:
    """Return first sentence, end, and target of each group, in the order of the text; (groups,) each.

    The next group of every document is found in one step, because there are far fewer groups in a document than
    documents.

    Args:
        edges: tokens before each sentence of the corpus, (sentences + 1,).
        documents: first sentence of each document, and end of the last, (documents + 1,).
        targets: tokens in a group of each document, (documents,).
        least: sentences in a group.
    """
    limits = documents[1:]
    owners: Ids = np.flatnonzero(np.diff(documents) >= least)
    starts: Ids = documents[owners]
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
    return starts[order], ends[order], targets[owners[order]]


class _Segments(NamedTuple):
    """Which sentences are in some pairs: numbers of sentences, (pairs,) each."""

    starts: tuple[Ids, Ids]  # of both segments
    ends: tuple[Ids, Ids]
    labels: NDArray[np.bool_]


@dataclass(frozen=True)
class SentencePairs:
    """Pairs of segments from documents, one for each group of sentences in each epoch.

    Item `epoch * len(self) + group` is the pair of a group in an epoch. The sentences of a pair follow from the seed
    and the item alone, so that its length is known before it is read.
    """

    documents: Documents
    groups: SentenceGroups
    room: int  # tokens of both segments together at most
    kind: PairKind
    seed: int

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
        groups = group_sentences(documents, room, seed, least=2 if kind == "sop" else 1)
        return cls(documents, groups, room, kind, seed)

    def __len__(self) -> int:
        """Return the number of pairs in an epoch."""
        return len(self.groups)

    @property
    def random_share(self) -> float:
        """The expected share of NSP pairs with a random second segment: half, and all where a group is one sentence."""
        return 0.5 + 0.5 * float((self.groups.ends - self.groups.starts == 1).mean())

    def lengths_of(self, items: Ids) -> Ids:
        """Return the tokens of some pairs, (items,)."""
        segments, edges = self._segments(items), self.documents.edges
        sizes = [edges[ends] - edges[starts] for starts, ends in zip(segments.starts, segments.ends, strict=True)]
        return np.minimum(sizes[0] + sizes[1], self.room)

    def pair(self, item: int, rng: np.random.Generator) -> Pair:
        """Return a pair: NSP as google-research/bert, SOP as google-research/albert.

        NSP: in half of the pairs, and where the group is a single sentence, the second segment is replaced by one from
        a random other document, which is as long as the target allows. SOP: half of the pairs are swapped (ALBERT's
        code takes another document where the group is a single sentence, which no group is here). Segments that exceed
        the room lose tokens at ends drawn from rng, the longer one first.
        """
        segments = self._segments(np.array([item]))
        spans = zip(segments.starts, segments.ends, strict=True)
        first, second = (self.documents.tokens(int(start[0]), int(end[0])) for start, end in spans)
        first, second = truncate(first, second, self.room, rng)
        return Pair(first, second, int(segments.labels[0]))

    def _segments(self, items: Ids) -> _Segments:
        """Draw where groups are split, and which segments are replaced or swapped."""
        groups = items % len(self)
        starts, ends = (numbers[groups].astype(np.int64) for numbers in (self.groups.starts, self.groups.ends))
        where, which, *other = _draws(items, self.seed)
        splits = starts + 1 + (where * np.maximum(ends - starts - 1, 1)).astype(np.int64)
        labels = (which < 0.5) | (ends - starts == 1)
        if self.kind == "sop":
            swapped = (np.where(labels, a, b) for a, b in ((splits, starts), (ends, splits)))
            in_order = (np.where(labels, a, b) for a, b in ((starts, splits), (splits, ends)))
            (first_starts, first_ends), (second_starts, second_ends) = swapped, in_order
            return _Segments((first_starts, second_starts), (first_ends, second_ends), labels)
        edges = self.documents.edges
        rest = np.maximum(self.groups.targets[groups] - (edges[splits] - edges[starts]), 1)
        other_starts, other_ends = self._others(starts, rest, *other)
        seconds = np.where(labels, other_starts, splits), np.where(labels, other_ends, ends)
        return _Segments((starts, seconds[0]), (splits, seconds[1]), labels)

    def _others(self, own: Ids, targets: Ids, which: Floats, where: Floats) -> tuple[Ids, Ids]:
        """Return sentences of another document than `own` is in, from a random one on, until they reach the targets."""
        documents, edges = self.documents.starts, self.documents.edges
        others = (which * (len(self.documents) - 1)).astype(np.int64)
        others += others >= np.searchsorted(documents, own, side="right") - 1
        firsts, limits = documents[others], documents[others + 1]
        starts = firsts + (where * (limits - firsts)).astype(np.int64)
        return starts, np.minimum(np.searchsorted(edges, edges[starts] + targets, side="left"), limits)

    def __str__(self) -> str:
        return f"{len(self):,} pairs of at most {self.room} tokens"


def _draws(items: Ids, seed: int) -> Floats:
    """Return four numbers from 0 to 1 for each item, (4, items), by SplitMix64 (Steele et al. 2014, section 3)."""
    (origin,) = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    numbers = items.astype(np.uint64) * np.uint64(4) + np.arange(4, dtype=np.uint64)[:, None]  # (4, items)
    hashes = splitmix64(numbers * np.uint64(_GAMMA) + origin)
    return (hashes >> np.uint64(11)) * np.float64(2.0**-53)


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
