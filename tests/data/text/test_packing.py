import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biosqueeze.data.text.blocks import Frame
from biosqueeze.data.text.packing import lay_out, pack

SIZE = 24
LENGTHS = st.lists(st.integers(1, SIZE), min_size=1, max_size=80).map(np.array)
FRAMES = st.tuples(st.lists(st.integers(0, 9), max_size=2), st.lists(st.integers(0, 9), max_size=2))


def _rooms_of_best_fit_decreasing(lengths: list[int], size: int) -> list[int]:
    """Return the room left in each block, from a search for the fullest block that fits each text."""
    rooms: list[int] = []
    for length in sorted(lengths, reverse=True):
        fitting = [room for room in rooms if room >= length]
        if fitting:
            rooms.remove(min(fitting))
        rooms.append((min(fitting) if fitting else size) - length)
    return sorted(rooms)


@settings(deadline=None)
@given(lengths=LENGTHS)
def test_it_is_best_fit_decreasing(lengths):
    packing = pack(lengths, SIZE)
    used = np.add.reduceat(lengths[packing.order], packing.starts[:-1])
    assert used.max() <= SIZE
    assert sorted((SIZE - used).tolist()) == _rooms_of_best_fit_decreasing(lengths.tolist(), SIZE)


@settings(deadline=None)
@given(lengths=LENGTHS)
def test_every_text_is_in_one_block(lengths):
    packing = pack(lengths, SIZE)
    assert sorted(packing.order.tolist()) == list(range(len(lengths)))
    assert packing.starts[0] == 0
    assert packing.starts[-1] == len(lengths)
    assert (np.diff(packing.starts) > 0).all()


@settings(deadline=None)
@given(lengths=LENGTHS)
def test_texts_of_one_length_keep_their_order(lengths):
    order = pack(lengths, SIZE).order
    for length in set(lengths.tolist()):
        of_length = order[lengths[order] == length]
        assert (np.diff(of_length) > 0).all()


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.int64])
def test_the_type_of_the_lengths_does_not_matter(dtype):
    lengths = np.random.default_rng(0).integers(1, 513, size=2000)
    assert np.array_equal(pack(lengths, 512).order, pack(lengths.astype(dtype), 512).order)


@pytest.mark.parametrize("size", [128, 512])
def test_almost_no_padding_for_lengths_of_sentences(size):
    lengths = np.random.default_rng(0).lognormal(3.4, 0.6, size=200_000).astype(np.int64).clip(3, size)
    packing = pack(lengths, size)
    blocks = len(packing.starts) - 1
    assert 1 - lengths.sum() / (blocks * size) < 0.005


def _laid_out_one_by_one(texts, frame, size, pad):
    ids, positions, segments = [], [], []
    for number, text in enumerate(texts, start=1):
        framed = [*frame.before.tolist(), *text, *frame.after.tolist()]
        ids += framed
        positions += range(len(framed))
        segments += [number] * len(framed)
    rest = size - len(ids)
    return {"input_ids": ids + [pad] * rest, "positions": positions + [0] * rest, "segments": segments + [0] * rest}


@settings(deadline=None)
@given(
    texts=st.lists(st.lists(st.integers(10, 65535), min_size=1, max_size=9), min_size=1, max_size=6),
    frame=FRAMES,
    rest=st.integers(0, 5),
)
def test_a_block_is_its_texts_one_after_the_other(texts, frame, rest):
    around = Frame(*(np.array(side, dtype=np.int64) for side in frame))
    size = sum(len(text) + len(around) for text in texts) + rest
    edges = 100 + np.cumsum([0, *(len(text) for text in texts)])  # offsets within a shard
    tokens = np.array([token for text in texts for token in text], dtype=np.uint16)
    block = lay_out(tokens, edges, around, size, 7)
    assert {name: values.tolist() for name, values in block.items()} == _laid_out_one_by_one(texts, around, size, 7)
    assert all(values.dtype == np.int64 for values in block.values())
