"""Masking against naive versions in plain Python, which follow the code of BERT, ALBERT and SpanBERT."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biosqueeze.data.feature_keys import IGNORED
from biosqueeze.data.text.masking import Masking
from tests import pico

VOCABULARY, MASK = 40, 4
SPECIAL = (0, 1, 2, 3, MASK, 17, 39)
STARTS = np.arange(VOCABULARY) % 3 != 0  # ids that 3 divides go on with a word
PIECES = Masking(MASK, SPECIAL, VOCABULARY)
MASKINGS = {unit: Masking(MASK, SPECIAL, VOCABULARY, unit, STARTS) for unit in ("piece", "word", "ngram", "span")}
UNITS = st.sampled_from(["piece", "word", "ngram", "span"])
IDS = st.lists(st.integers(0, VOCABULARY - 1), max_size=60).map(lambda x: np.array(x, dtype=np.int64))


def words_of(ids: np.ndarray, segments: np.ndarray | None = None) -> list[list[int]]:
    """The positions of each word."""
    words: list[list[int]] = []
    for position, number in enumerate(ids.tolist()):
        if number in SPECIAL:
            continue
        within = position > 0 and not STARTS[number] and ids[position - 1] not in SPECIAL
        if within and (segments is None or segments[position] == segments[position - 1]):
            words[-1].append(position)
        else:
            words.append([position])
    return words


def two_texts(ids: np.ndarray, border: int) -> tuple[np.ndarray, list[list[int]]]:
    """The text of each position, of which the second starts at the border, and the positions of each word."""
    segments = 1 + (np.arange(len(ids)) >= border)
    return segments, words_of(ids, segments)


def chosen_by(unit: str, ids: np.ndarray, seed: int, rate: float, segments: np.ndarray) -> set[int]:
    """The positions that a masking chooses."""
    labels = MASKINGS[unit](ids, np.random.default_rng(seed), rate, segments)[1]
    return set(np.flatnonzero(labels != IGNORED).tolist())


def to_choose(words: list[list[int]], rate: float) -> int:
    """The number of tokens that a rate asks for."""
    return max(1, round(rate * sum(map(len, words))))


def greedy_words(words: list[list[int]], count: int, order: np.ndarray) -> set[int]:
    """As create_masked_lm_predictions of google-research/bert."""
    chosen: set[int] = set()
    for number in order:
        if len(chosen) >= count:
            break
        if len(chosen) + len(words[number]) > count:
            continue
        chosen |= set(words[number])
    return chosen or set(words[order[0]])


@given(ids=IDS, seed=st.integers(0, 2**32), rate=st.floats(0.05, 1.0), unit=UNITS)
def test_invariants(ids, seed, rate, unit):
    before = ids.copy()
    hidden, labels = MASKINGS[unit](ids, np.random.default_rng(seed), rate)
    chosen = labels != IGNORED
    ordinary = ~np.isin(before, SPECIAL)
    assert (ids == before).all()
    assert (labels[chosen] == ids[chosen]).all()
    assert (hidden[~chosen] == ids[~chosen]).all()
    assert not (chosen & ~ordinary).any()
    assert chosen.any() == ordinary.any()
    assert not (set(hidden[chosen].tolist()) & (set(SPECIAL) - {MASK}))
    assert hidden.dtype == labels.dtype == np.int64
    wanted, words = max(1, round(rate * ordinary.sum())), words_of(ids)
    if unit == "piece":
        assert chosen.sum() == (wanted if ordinary.any() else 0)
    else:
        assert all(len(set(chosen[word].tolist())) == 1 for word in words)
        assert chosen.sum() < wanted + max(map(len, words), default=1)


@given(ids=IDS, seed=st.integers(0, 2**32), unit=UNITS)
def test_a_pure_function_of_the_generator(ids, seed, unit):
    first = MASKINGS[unit](ids, np.random.default_rng(seed))
    again = replace(MASKINGS[unit], special_ids=SPECIAL[::-1])(ids, np.random.default_rng(seed))
    assert np.array_equal(first, again)


@given(ids=IDS, seed=st.integers(0, 2**32), rate=st.floats(0.05, 1.0))
def test_pieces_as_before_there_were_other_units(ids, seed, rate):
    """The draws of a former release, one by one: trainings that it interrupted go on with the same masks."""
    hidden, labels = PIECES(ids, np.random.default_rng(seed), rate)
    rng = np.random.default_rng(seed)
    ordinary = np.flatnonzero(~np.isin(ids, SPECIAL))
    if not len(ordinary):
        return
    chosen = rng.permutation(ordinary)[: max(1, round(rate * len(ordinary)))]
    allowed = np.setdiff1d(np.arange(VOCABULARY), SPECIAL)
    random = allowed[rng.integers(0, len(allowed), size=len(chosen))]
    expected, draw = ids.copy(), rng.random(len(chosen))
    for place, token, kind in zip(chosen, random, draw, strict=True):
        expected[place] = MASK if kind < 0.8 else token if kind < 0.9 else ids[place]
    assert hidden.tolist() == expected.tolist()
    assert np.flatnonzero(labels != IGNORED).tolist() == sorted(chosen.tolist())


@given(ids=IDS, seed=st.integers(0, 2**32), rate=st.floats(0.05, 1.0), border=st.integers(0, 60))
def test_words_as_in_the_code_of_bert(ids, seed, rate, border):
    segments, words = two_texts(ids, border)
    chosen = chosen_by("word", ids, seed, rate, segments)
    order = np.random.default_rng(seed).permutation(len(words))
    assert chosen == (greedy_words(words, to_choose(words, rate), order) if words else set())


def greedy_ngrams(words: list[list[int]], texts: list[int], count: int, seed: int) -> set[int]:
    """As create_masked_lm_predictions of google-research/albert; `texts` has the number of each word's text."""
    rng = np.random.default_rng(seed)
    order, draws = rng.permutation(len(words)), rng.random(len(words))
    chosen: set[int] = set()
    for number, draw in zip(order, draws, strict=True):
        following = [word for word, text in zip(words[number:], texts[number:], strict=True) if text == texts[number]]
        length = min(1 if draw < 6 / 11 else 2 if draw < 9 / 11 else 3, len(following))
        while length and len(chosen) + sum(map(len, following[:length])) > count:
            length -= 1
        tokens = {token for word in following[:length] for token in word}
        if not tokens & chosen:
            chosen |= tokens
    return chosen or set(words[order[0]])


@given(ids=IDS, seed=st.integers(0, 2**32), rate=st.floats(0.05, 1.0), border=st.integers(0, 60))
def test_ngrams_as_in_the_code_of_albert(ids, seed, rate, border):
    segments, words = two_texts(ids, border)
    special = np.cumsum(np.isin(ids, SPECIAL))  # n-grams do not cross special tokens
    texts = [int(special[word[0]] * 10 + segments[word[0]]) for word in words]
    chosen = chosen_by("ngram", ids, seed, rate, segments)
    assert chosen == (greedy_ngrams(words, texts, to_choose(words, rate), seed) if words else set())


def test_ngram_lengths_favour_short_ones():
    ids, rng = np.full(5000, 20), np.random.default_rng(3)
    masks = (MASKINGS["ngram"](ids, rng, 0.01)[1] != IGNORED for _ in range(60))
    counts = np.bincount([run for chosen in masks for run in _runs(ids, chosen)], minlength=4)[1:4]
    assert counts / counts.sum() == pytest.approx(np.array([6, 3, 2]) / 11, abs=0.04)


@given(ids=IDS, seed=st.integers(0, 2**32), rate=st.floats(0.05, 0.6), border=st.integers(0, 60))
def test_spans_are_within_one_text(ids, seed, rate, border):
    segments, words = two_texts(ids, border)
    chosen = np.isin(np.arange(len(ids)), list(chosen_by("span", ids, seed, rate, segments)))
    assert all(len(set(chosen[word].tolist())) == 1 for word in words)
    longest = max(map(len, words), default=0)
    assert not words or abs(int(chosen.sum()) - to_choose(words, rate)) <= longest / 2 or chosen.sum() <= longest


def _long(unit: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    allowed = np.setdiff1d(np.arange(VOCABULARY), SPECIAL)
    ids = rng.choice(allowed, size=(400, 512))
    ids[:, 0], ids[:, -1] = 2, 3
    made = [MASKINGS[unit](row, rng, 0.15) for row in ids]
    return ids, np.array([hidden for hidden, _ in made]), np.array([labels for _, labels in made]) != IGNORED


@pytest.mark.parametrize("unit", ["word", "ngram", "span"])
def test_as_many_tokens_as_the_rate_says(unit):
    ids, hidden, chosen = _long(unit)
    assert chosen.sum() / (ids > 3).sum() == pytest.approx(0.15, abs=0.002)
    assert (hidden[chosen] == MASK).mean() == pytest.approx(0.8, abs=0.02)
    assert (hidden[chosen] == ids[chosen]).mean() == pytest.approx(0.1 + 0.1 / 33, abs=0.015)


@pytest.mark.parametrize("unit", ["word", "ngram"])
def test_tokens_of_a_word_are_replaced_one_by_one(unit):
    ids, hidden, chosen = _long(unit)
    pairs = chosen[:, :-1] & chosen[:, 1:] & ~STARTS[ids[:, 1:]]  # both tokens of one word
    kinds = hidden == MASK
    equal = (kinds[:, :-1] == kinds[:, 1:])[pairs].mean()
    assert equal == pytest.approx(0.8**2 + 0.2**2, abs=0.03)


def _runs(ids: np.ndarray, chosen: np.ndarray) -> list[int]:
    """Lengths of the chosen spans in words."""
    firsts = [word[0] for word in words_of(ids)]
    hit = "".join("x" if chosen[first] else " " for first in firsts)
    return [len(run) for run in hit.split()]


def test_span_lengths_are_geometric():
    rng = np.random.default_rng(3)
    ids = np.full(6000, 20)
    runs = [run for _ in range(150) for run in _runs(ids, MASKINGS["span"](ids, rng, 0.002)[1] != IGNORED)]
    # Of 12 tokens, the last span is cut; with 0.002 of the text, spans hardly ever touch.
    assert max(runs) <= 12
    lengths = 0.8 ** np.arange(10) * 0.2
    assert (lengths / lengths.sum() @ np.arange(1, 11)) == pytest.approx(3.8, abs=0.01)
    first = _first_span_lengths()
    assert np.mean(first) == pytest.approx(3.8, abs=0.15)
    assert np.bincount(first, minlength=11)[1:] / len(first) == pytest.approx(lengths / lengths.sum(), abs=0.03)


def _first_span_lengths() -> list[int]:
    """Draw masks of 30 tokens of one long text, and take the span that is drawn first: it is never cut."""
    rng, found = np.random.default_rng(4), []
    ids = np.full(2000, 20)
    for _ in range(2500):
        start = np.random.Generator(type(rng.bit_generator)())
        start.bit_generator.state = rng.bit_generator.state
        first = int(start.integers(0, len(ids), size=30)[0])
        chosen = MASKINGS["span"](ids, rng, 0.015)[1] != IGNORED
        length = 0
        while first + length < len(ids) and chosen[first + length]:
            length += 1
        if first + 10 < len(ids):
            found.append(min(length, 10))
    return found


def test_tokens_of_a_span_are_replaced_alike():
    _, hidden, chosen = _long("span")
    both = chosen[:, :-1] & chosen[:, 1:]
    kinds = hidden == MASK
    assert (kinds[:, :-1] == kinds[:, 1:])[both].all()


@pytest.fixture(scope="module")
def many():
    ids = np.full(200_000, 20, dtype=np.int64)
    hidden, labels = PIECES(ids, np.random.default_rng(0))
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
    ordinary = np.array(sorted(set(range(VOCABULARY)) - set(SPECIAL) - {20}))
    assert counts.sum() == counts[ordinary].sum()
    expected = len(drawn) / len(ordinary)
    chi_square = ((counts[ordinary] - expected) ** 2 / expected).sum()
    assert chi_square < 70  # 31 degrees of freedom: 0.0001 beyond


@pytest.mark.parametrize("unit", ["piece", "word", "span"])
def test_positions_are_chosen_evenly(unit):
    rng = np.random.default_rng(1)
    ids = np.arange(20, 36, dtype=np.int64)
    masking = Masking(MASK, (0,), VOCABULARY, unit, np.ones(VOCABULARY, dtype=bool))
    hits = sum(masking(ids, rng)[1] != IGNORED for _ in range(4000))
    if unit == "span":  # a span that starts near the end is cut there
        hits = hits[4:]
    assert hits / 4000 == pytest.approx(hits.mean() / 4000, abs=0.02)
    assert hits.mean() / 4000 == pytest.approx(2 / 16, abs=0.01)


def test_single_pieces_need_no_words():
    tokenizer = pico.tokenizer_of("bert")
    assert not len(Masking.of(tokenizer).starts)
    assert len(Masking.of(tokenizer, "span").starts) == len(tokenizer)
