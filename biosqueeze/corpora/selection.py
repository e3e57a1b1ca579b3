"""Decide which articles of the whole corpus are kept: versions, duplicates, samples, and the held-out share."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from biosqueeze.corpora.article import KINDS
from biosqueeze.corpora.settings import CorpusSettings, SampleSize
from biosqueeze.data.splitmix import splitmix64

Hashes = NDArray[np.uint64]
NO_ID = np.uint64(0)


class Decision(IntEnum):
    """What becomes of an article that passed the filters."""

    KEPT = 0
    HELD_OUT = 1
    DAMAGED_FILE = 2
    OLDER_VERSION = 3
    WITHDRAWN = 4
    DUPLICATE = 5
    NEAR_DUPLICATE = 6
    NOT_SAMPLED = 7


@dataclass(frozen=True)
class ArticleTable:
    """One row for each article, in reading order; some 45 bytes each."""

    ids: Hashes  # of kind and id; 0 without an id
    texts: Hashes  # of the folded text
    priorities: Hashes  # uniform, determined by text and seed
    bytes: NDArray[np.uint32]
    sentences: NDArray[np.uint32]
    words: NDArray[np.uint32]
    kinds: NDArray[np.uint8]  # index in KINDS
    damaged: NDArray[np.bool_]  # whether its file turned out to be damaged
    withdrawn: Hashes  # (deletions,) hashes of ids
    withdrawn_at: NDArray[np.int64]  # (deletions,) number of rows before each
    dropped: Hashes  # (dropped,) hashes of the ids of articles that a filter dropped
    dropped_at: NDArray[np.int64]  # (dropped,) number of rows before each

    @classmethod
    def joined(cls, tables: "Sequence[ArticleTable]") -> "ArticleTable":
        """Return the tables of all parts as one."""
        starts = np.cumsum([0, *(len(table.ids) for table in tables)])
        columns = {name: np.concatenate([getattr(table, name) for table in tables]) for name in vars(tables[0])}
        for name in ("withdrawn_at", "dropped_at"):
            moved = [getattr(table, name) + start for table, start in zip(tables, starts, strict=False)]
            columns[name] = np.concatenate(moved)
        return cls(**columns)


def decide(table: ArticleTable, settings: CorpusSettings, near: "NearDuplicates | None" = None) -> NDArray[np.uint8]:
    """Return the `Decision` of every row, (articles,).

    Of several versions of one id the last is kept, or none where a filter dropped it; of equal texts the first. The
    sample and the held-out share are the articles with the lowest priorities, so that they do not depend on the order
    of the files.
    """
    decisions = np.full(len(table.ids), Decision.KEPT, dtype=np.uint8)
    decisions[table.damaged] = Decision.DAMAGED_FILE
    _mark(decisions, _older_versions(table, decisions), Decision.OLDER_VERSION)
    _mark(decisions, _followed(table.ids, table.dropped, table.dropped_at), Decision.OLDER_VERSION)
    _mark(decisions, _followed(table.ids, table.withdrawn, table.withdrawn_at), Decision.WITHDRAWN)
    _mark(decisions, _repeated(table.texts, decisions == Decision.KEPT), Decision.DUPLICATE)
    if near is not None:
        _mark(decisions, near.repeated(decisions == Decision.KEPT), Decision.NEAR_DUPLICATE)
    for sample in _in_order(settings.samples):
        _mark(decisions, _outside_sample(table, decisions, sample), Decision.NOT_SAMPLED)
    if settings.held_out:
        limit = np.uint64(min(int(settings.held_out * 2.0**64), 2**64 - 1))
        # The sample has taken the lowest priorities of its kind: these bits are independent of it.
        _mark(decisions, splitmix64(table.priorities) < limit, Decision.HELD_OUT)
    return decisions


def _mark(decisions: NDArray[np.uint8], rows: NDArray[np.bool_], decision: Decision) -> None:
    decisions[rows & (decisions == Decision.KEPT)] = decision


def _older_versions(table: ArticleTable, decisions: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return the rows whose id occurs again in a later row."""
    compared = (decisions == Decision.KEPT) & (table.ids != NO_ID)
    return _repeated(table.ids[::-1], compared[::-1])[::-1]


def _repeated(values: Hashes, compared: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which of the compared rows have a value that an earlier one of them has."""
    firsts = np.flatnonzero(compared)[np.unique(values[compared], return_index=True)[1]]
    rows = compared.copy()
    rows[firsts] = False
    return rows


def _followed(ids: Hashes, later: Hashes, before: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return the rows whose id follows later.

    Args:
        ids: of the rows, (articles,).
        later: ids that are no rows, (noted,).
        before: number of rows before each of these, (noted,).
    """
    if not len(later):
        return np.zeros(len(ids), dtype=bool)
    order = np.lexsort((before, later))
    later, before = later[order], before[order]
    last = np.searchsorted(later, ids, side="right") - 1  # the latest place of each row's id
    rows: NDArray[np.bool_] = (later[last] == ids) & (last >= 0) & (before[last] > np.arange(len(ids)))
    return rows


def _in_order(samples: Sequence[SampleSize]) -> Iterator[SampleSize]:
    """Yield the samples, each after those of the kind that it is as large as, where these are no circle."""
    waiting = list(samples)
    while waiting:
        open_kinds = {sample.kind for sample in waiting}
        ready = next((sample for sample in waiting if sample.as_kind not in open_kinds), waiting[0])
        waiting.remove(ready)
        yield ready


def _outside_sample(table: ArticleTable, decisions: NDArray[np.uint8], sample: SampleSize) -> NDArray[np.bool_]:
    """Return the rows of the sample's kind that are beyond its size, in the order of their priorities."""
    rows = np.zeros(len(decisions), dtype=bool)
    of_kind = np.flatnonzero((decisions == Decision.KEPT) & (table.kinds == KINDS.index(sample.kind)))
    ordered = of_kind[np.argsort(table.priorities[of_kind], kind="stable")]
    if sample.articles is not None:
        rows[ordered[sample.articles :]] = True
        return rows
    room = sample.bytes if sample.bytes is not None else _bytes_of(table, decisions, str(sample.as_kind))
    rows[ordered[np.cumsum(table.bytes[ordered], dtype=np.int64) > room]] = True
    return rows


def _bytes_of(table: ArticleTable, decisions: NDArray[np.uint8], kind: str) -> int:
    rows = (decisions == Decision.KEPT) & (table.kinds == KINDS.index(kind))
    return int(table.bytes[rows].sum(dtype=np.int64))


class NearDuplicates:
    """Near duplicates by the MinHash signatures of all articles, (articles, permutations), on disk.

    Signatures are cut into bands; articles that agree in a whole band are compared by the share of equal values, which
    estimates the Jaccard similarity of their shingles (Broder 1997). One band is in memory at a time.
    """

    def __init__(self, signatures: "Sequence[NDArray[np.uint32]]", threshold: float) -> None:
        self._signatures = signatures
        self._starts = np.cumsum([0, *map(len, signatures)])
        self._threshold = threshold
        self._rows_of_band = rows_of_band(threshold, signatures[0].shape[1])

    def repeated(self, kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which kept articles are near duplicates of an earlier one, which may be such a duplicate itself.

        Of a chain in which the last article is not near the first, it may be marked or not: by which bands agree.
        """
        repeated = np.zeros(int(self._starts[-1]), dtype=bool)
        width = self._rows_of_band
        for first in range(0, self._signatures[0].shape[1] - width + 1, width):
            keys = np.concatenate([_key(part[:, first : first + width]) for part in self._signatures])
            for group in _groups(keys, np.flatnonzero(kept & ~repeated)):
                self._mark_group(group, repeated)
        return repeated

    def _mark_group(self, group: NDArray[np.intp], repeated: NDArray[np.bool_]) -> None:
        """Mark each article of a group that is near an earlier, unmarked one."""
        signatures = np.stack([self._signature(row) for row in group])
        for place, row in enumerate(group):
            if repeated[row]:
                continue
            near = (signatures[place + 1 :] == signatures[place]).mean(axis=1) >= self._threshold
            repeated[group[place + 1 :][near]] = True

    def _signature(self, row: int) -> NDArray[np.uint32]:
        part = int(np.searchsorted(self._starts, row, side="right")) - 1
        return np.asarray(self._signatures[part][row - self._starts[part]])


def rows_of_band(threshold: float, permutations: int) -> int:
    """Return the highest number of rows in a band with which a pair at the threshold is found with 99%."""
    widths = [width for width in range(1, 17) if permutations % width == 0]
    found = [width for width in widths if 1 - (1 - threshold**width) ** (permutations // width) >= 0.99]
    return max(found, default=1)


def _key(band: NDArray[np.uint32]) -> Hashes:
    """Return one hash of the values in a band, (articles,)."""
    key = np.full(len(band), 0xCBF29CE484222325, dtype=np.uint64)
    for column in range(band.shape[1]):
        key = (key ^ band[:, column].astype(np.uint64)) * np.uint64(0x100000001B3)
        key ^= key >> np.uint64(29)
    return key


def _groups(keys: Hashes, rows: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """Yield the rows that share a key, in groups of at least two, each in reading order."""
    ordered = rows[np.argsort(keys[rows], kind="stable")]
    edges = np.concatenate([[0], np.flatnonzero(np.diff(keys[ordered])) + 1, [len(ordered)]])
    for place in np.flatnonzero(np.diff(edges) > 1):
        yield ordered[edges[place] : edges[place + 1]]
