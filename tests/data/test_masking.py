import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biosqueeze.data.feature_keys import IGNORED
from biosqueeze.data.masking import mask

VOCABULARY, MASK = 40, 4
SPECIAL = {0, 1, 2, 3, MASK, 17, 39}
IDS = st.lists(st.integers(0, VOCABULARY - 1), max_size=60).map(lambda x: np.array(x, dtype=np.int64))


@given(ids=IDS, seed=st.integers(0, 2**32), rate=st.floats(0.05, 1.0))
def test_invariants(ids, seed, rate):
    before = ids.copy()
    hidden, labels = mask(ids, SPECIAL, VOCABULARY, MASK, np.random.default_rng(seed), rate)
    chosen = labels != IGNORED
    ordinary = ~np.isin(before, list(SPECIAL))
    assert (ids == before).all()
    assert (labels[chosen] == ids[chosen]).all()
    assert (hidden[~chosen] == ids[~chosen]).all()
    assert not (chosen & ~ordinary).any()
    assert chosen.sum() == (max(1, round(rate * ordinary.sum())) if ordinary.any() else 0)
    assert not (set(hidden[chosen].tolist()) & (SPECIAL - {MASK}))
    assert hidden.dtype == labels.dtype == np.int64


@given(ids=IDS, seed=st.integers(0, 2**32))
def test_a_pure_function_of_the_generator(ids, seed):
    first = mask(ids, SPECIAL, VOCABULARY, MASK, np.random.default_rng(seed))
    again = mask(ids, np.array(sorted(SPECIAL)), VOCABULARY, MASK, np.random.default_rng(seed))
    assert np.array_equal(first, again)


@pytest.fixture(scope="module")
def many():
    ids = np.full(200_000, 20, dtype=np.int64)
    hidden, labels = mask(ids, SPECIAL, VOCABULARY, MASK, np.random.default_rng(0))
    return hidden[labels != IGNORED]


def test_eighty_ten_ten(many):
    assert len(many) == 30_000
    unchanged = (many == 20).mean()
    masked = (many == MASK).mean()
    assert masked == pytest.approx(0.8, abs=0.01)
    # A random token is the original one in 1 of 33 draws.
    assert unchanged == pytest.approx(0.1 + 0.1 / 33, abs=0.01)


def test_random_tokens_are_uniform_over_all_ordinary_ones(many):
    drawn = many[(many != MASK) & (many != 20)]
    counts = np.bincount(drawn, minlength=VOCABULARY)
    ordinary = np.array(sorted(set(range(VOCABULARY)) - SPECIAL - {20}))
    assert counts.sum() == counts[ordinary].sum()
    expected = len(drawn) / len(ordinary)
    chi_square = ((counts[ordinary] - expected) ** 2 / expected).sum()
    assert chi_square < 70  # 31 degrees of freedom: 0.0001 beyond


def test_positions_are_chosen_evenly():
    rng = np.random.default_rng(1)
    ids = np.arange(20, 36, dtype=np.int64)
    hits = sum(mask(ids, {0}, VOCABULARY, MASK, rng)[1] != IGNORED for _ in range(4000))
    assert hits / 4000 == pytest.approx(2 / 16, abs=0.02)
