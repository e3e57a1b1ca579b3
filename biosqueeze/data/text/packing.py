"""Pack whole texts into blocks of one length, with almost no padding."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.text.blocks import Frame

Ids = NDArray[np.int64]
_Lengths = tuple[int, ...]  # of the texts in one block


@dataclass(frozen=True)
class Packing:
    """The texts of each block."""

    order: Ids  # (texts,) indices of the texts, block by block
    starts: Ids  # (blocks + 1,) start of each block in `order`


def pack(lengths: NDArray[np.integer], size: int) -> Packing:
    """Put whole texts into blocks by best-fit decreasing: longest first, each into the block with the least room left.

    The algorithm uses the histogram of the lengths and places all texts of one length at once, so that its time is
    almost independent of their number (Krell et al. 2021, "Efficient sequence packing without cross-contamination",
    arXiv:2107.02027). The result depends on the lengths alone.

    Args:
        lengths: positions of each text (texts,), special tokens included; from 1 to `size`.
        size: positions in a block.
    """
    counts, blocks = _best_fit(np.bincount(lengths, minlength=size + 1), size)
    placed = [np.tile(np.asarray(block, dtype=lengths.dtype), n) for n, block in zip(counts, blocks, strict=True)]
    # The lengths are placed block by block; each place gets the next text of its length in reading order.
    order = np.empty(len(lengths), dtype=np.int64)
    order[np.argsort(np.concatenate(placed), kind="stable")] = np.argsort(lengths, kind="stable")
    sizes = np.repeat([len(block) for block in blocks], counts)  # (blocks,) in texts
    return Packing(order, np.concatenate([[0], np.cumsum(sizes)]))


def _best_fit(histogram: Ids, size: int) -> tuple[list[int], list[_Lengths]]:
    """Return how many blocks with which lengths hold the texts of a histogram (size + 1,) of lengths."""
    # For each number of free positions: how many blocks with which lengths. There are more empty blocks than texts.
    by_room: list[list[tuple[int, _Lengths]]] = [[] for _ in range(size + 1)]
    by_room[size].append((int(histogram.sum()) + 1, ()))
    for length in range(size, 0, -1):
        left = int(histogram[length])
        for room in range(length, size + 1):
            # Each block is filled before the next, because a text leaves even less room in the block with the least.
            while left and by_room[room]:
                left = _fill(by_room, room, length, left)
    filled = [(count, lengths) for blocks in by_room for count, lengths in blocks if lengths]
    return [count for count, _ in filled], [lengths for _, lengths in filled]


def _fill(by_room: list[list[tuple[int, _Lengths]]], room: int, length: int, left: int) -> int:
    """Put texts of one length into the blocks with equal lengths; return how many texts are left."""
    count, lengths = by_room[room].pop()
    fit = room // length
    full = min(count, left // fit)
    rest = left % fit if full < count else 0  # too few to fill one more block
    for blocks, texts in ((full, fit), (1, rest)):
        if blocks and texts:
            by_room[room - texts * length].append((blocks, lengths + (length,) * texts))
    untouched = count - full - (rest > 0)
    if untouched:
        by_room[room].append((untouched, lengths))
    return left - full * fit - rest


def lay_out(
    tokens: NDArray[np.integer], edges: NDArray[np.integer], frame: Frame, size: int, pad_token_id: int
) -> dict[str, Ids]:
    """Return one block as model inputs.

    Args:
        tokens: of all texts of the block, without special tokens.
        edges: start of each text in `tokens`, and end of the last, (texts + 1,).
        frame: the special tokens around each text.
        size: positions in the block.
        pad_token_id: fills the remaining positions.

    Returns:
        `input_ids`, `positions` (within each text, from 0) and `segments` (number of the text, from 1), (size,) each;
        positions and segments are 0 in padding.
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
