"""Packing: whole texts side by side in blocks of one length, so that hardly any position is padding."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.blocks import Frame

Ids = NDArray[np.int64]
_Kind = tuple[int, ...]  # the lengths of the texts in one block


@dataclass(frozen=True)
class Packing:
    """Which texts lie in which block."""

    order: Ids  # (texts,) the texts' numbers, block by block
    starts: Ids  # (blocks + 1,) where each block starts in `order`


def pack(lengths: NDArray[np.integer], size: int) -> Packing:
    """Put whole texts into blocks by best-fit decreasing: longest first, each where it leaves the least room.

    It is done on the histogram of the lengths, for all texts of one length at once, so that the time hardly depends
    on how many there are (Krell et al. 2021, "Efficient sequence packing without cross-contamination",
    arXiv:2107.02027). The result depends on nothing but the lengths.

    Args:
        lengths: positions that each text takes (texts,), special tokens included; from 1 to `size`.
        size: positions in a block.
    """
    counts, kinds = _best_fit(np.bincount(lengths, minlength=size + 1), size)
    wanted = [np.tile(np.asarray(kind, dtype=lengths.dtype), n) for n, kind in zip(counts, kinds, strict=True)]
    # Block by block, a text of each length is wanted; the first of that length in reading order is taken.
    order = np.empty(len(lengths), dtype=np.int64)
    order[np.argsort(np.concatenate(wanted), kind="stable")] = np.argsort(lengths, kind="stable")
    sizes = np.repeat([len(kind) for kind in kinds], counts)  # (blocks,) in texts
    return Packing(order, np.concatenate([[0], np.cumsum(sizes)]))


def _best_fit(histogram: Ids, size: int) -> tuple[list[int], list[_Kind]]:
    """How many blocks of which kind hold the texts that a histogram (size + 1,) counts by length."""
    # By the room that is left: how many blocks of which kind. Empty blocks never run out.
    by_room: list[list[tuple[int, _Kind]]] = [[] for _ in range(size + 1)]
    by_room[size].append((int(histogram.sum()) + 1, ()))
    for length in range(size, 0, -1):
        left = int(histogram[length])
        for room in range(length, size + 1):
            # What a text leaves of the smallest room is smaller still: each block is filled before the next.
            while left and by_room[room]:
                left = _fill(by_room, room, length, left)
    filled = [(count, kind) for blocks in by_room for count, kind in blocks if kind]
    return [count for count, _ in filled], [kind for _, kind in filled]


def _fill(by_room: list[list[tuple[int, _Kind]]], room: int, length: int, left: int) -> int:
    """Put texts of one length into the blocks of one kind; returns how many texts are still left."""
    count, kind = by_room[room].pop()
    fit = room // length
    full = min(count, left // fit)
    rest = left % fit if full < count else 0  # too few to fill one more block
    for blocks, texts in ((full, fit), (1, rest)):
        if blocks and texts:
            by_room[room - texts * length].append((blocks, kind + (length,) * texts))
    untouched = count - full - (rest > 0)
    if untouched:
        by_room[room].append((untouched, kind))
    return left - full * fit - rest


def lay_out(
    tokens: NDArray[np.integer], edges: NDArray[np.integer], frame: Frame, size: int, pad_token_id: int
) -> dict[str, Ids]:
    """One block as a model reads it.

    Args:
        tokens: of all texts of the block, without special tokens.
        edges: where each text starts in `tokens`, and where the last ends, (texts + 1,).
        frame: the special tokens around each text.
        size: positions in the block.
        pad_token_id: fills the positions that are left over.

    Returns:
        `input_ids`, `positions` (within its text, from 0) and `segments` (number of the text, from 1), (size,) each;
        positions and segments are 0 where nothing is left to fill the block.
    """
    lengths = np.diff(edges) + len(frame)  # (texts,)
    ends = np.cumsum(lengths)
    used = int(ends[-1])
    positions, segments = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    positions[:used] = np.arange(used) - np.repeat(ends - lengths, lengths)
    segments[:used] = np.repeat(np.arange(1, len(lengths) + 1), lengths)
    before, after = len(frame.before), len(frame.after)
    ids = np.full(size, pad_token_id, dtype=np.int64)
    of_text = np.zeros(size, dtype=bool)
    of_text[:used] = (positions[:used] >= before) & (positions[:used] < np.repeat(lengths - after, lengths))
    ids[of_text] = tokens
    ids[(ends - lengths)[:, None] + np.arange(before)] = frame.before
    ids[ends[:, None] - after + np.arange(after)] = frame.after
    return {"input_ids": ids, "positions": positions, "segments": segments}
