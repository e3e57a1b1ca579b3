"""Pairs of segments against a naive version of BERT's and ALBERT's create_pretraining_data.py on lists of tokens."""

import itertools
import random
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biosqueeze.data.text.blocks import EncodedDocuments, Frame
from biosqueeze.data.text.prepared_corpus import Corpus
from biosqueeze.data.text.prepared_documents import Documents, write_document_index
from biosqueeze.data.text.sentence_pairs import SentencePairs, group_sentences, truncate
from biosqueeze.data.text.shards import ShardLayout, write_shards
from biosqueeze.errors import SqueezeError

Texts = list[list[list[int]]]  # documents, sentences, tokens
TEXTS = st.lists(
    st.lists(st.lists(st.integers(5, 999), min_size=1, max_size=9), min_size=1, max_size=7), min_size=2, max_size=9
)


def _documents(texts: Texts, folder: Path, shard_tokens: int = 10**6) -> Documents:
    parts = (
        EncodedDocuments(
            np.array([token for sentence in text for token in sentence], dtype=np.int32),
            np.array([len(sentence) for sentence in text], dtype=np.int64),
            np.array([len(text)]),
        ).whole()
        for text in texts
    )
    with patch("biosqueeze.data.text.shards.SHARD_TOKENS", shard_tokens):
        entries = write_shards(folder, parts, ShardLayout(0, 0, 1 << 20))
    write_document_index(folder, entries)
    empty = np.array([], dtype=np.int64)
    return Documents(Corpus(folder, 0, Frame(empty, empty), tuple(entries)))


def _numbered(count: int, seed: int = 0, longest: int = 12) -> Texts:
    """Documents whose tokens are all different: 1000 * document + place."""
    rng = random.Random(seed)
    texts = []
    for number in range(1, count + 1):
        tokens = itertools.count(1000 * number)
        sizes = [rng.randint(2, 9) for _ in range(rng.randint(2, longest))]
        texts.append([list(itertools.islice(tokens, size)) for size in sizes])
    return texts


def naive_groups(text: list[list[int]], target: int, least: int) -> list[tuple[int, int]]:
    """As the loop of create_instances_from_document without the sentences that it puts back."""
    groups, chunk, length = [], [], 0
    for number, sentence in enumerate(text):
        chunk.append(number)
        length += len(sentence)
        left = len(text) - 1 - number
        if left == 0 or (length >= target and len(chunk) >= least and left >= least):
            groups.append((chunk[0], chunk[-1] + 1))
            chunk, length = [], 0
    return groups


def naive_truncate(first: list[int], second: list[int], room: int, rng: random.Random) -> None:
    """As truncate_seq_pair of google-research/bert."""
    while len(first) + len(second) > room:
        longer = first if len(first) > len(second) else second
        if rng.random() < 0.5:
            del longer[0]
        else:
            longer.pop()


@settings(deadline=None, max_examples=50)
@given(texts=TEXTS, room=st.integers(2, 30), shard_tokens=st.sampled_from([1, 40, 10**6]), least=st.integers(1, 2))
def test_groups_are_those_of_the_naive_version(tmp_path_factory, texts, room, shard_tokens, least):
    documents = _documents(texts, tmp_path_factory.mktemp("pairs"), shard_tokens)
    groups = group_sentences(documents, room, 3, least)
    assert len(documents) == len(texts)
    # The targets are random; everything else follows from them.
    firsts = np.cumsum([0, *map(len, texts)])
    owners = np.searchsorted(firsts, groups.starts, side="right") - 1
    for number, text in enumerate(texts):
        own = owners == number
        if len(text) < least:
            assert not own.any()
            continue
        (target,) = set(groups.targets[own].tolist())
        assert 2 <= target <= room
        expected = [
            (first + firsts[number], last + firsts[number]) for first, last in naive_groups(text, target, least)
        ]
        assert list(zip(groups.starts[own], groups.ends[own], strict=True)) == expected


def test_a_tenth_of_the_targets_is_shorter(tmp_path):
    documents = _documents(_numbered(4000, longest=2), tmp_path)
    groups = group_sentences(documents, 100, seed=0)
    short = groups.targets < 100
    assert short.mean() == pytest.approx(0.1 * 98 / 99, abs=0.015)
    assert groups.targets[short].mean() == pytest.approx(50.5, abs=4)
    again = group_sentences(documents, 100, seed=0)
    assert (again.targets == groups.targets).all()
    assert not np.array_equal(group_sentences(documents, 100, seed=1).targets, groups.targets)


@given(first=st.integers(0, 20), second=st.integers(0, 20), room=st.integers(2, 30), seed=st.integers(0, 99))
def test_truncation_has_the_lengths_of_the_naive_version(first, second, room, seed):
    segments = np.arange(first), np.arange(100, 100 + second)
    lists = [segment.tolist() for segment in segments]
    naive_truncate(*lists, room, random.Random(seed))
    cut = truncate(*segments, room, np.random.default_rng(seed))
    assert [len(segment) for segment in cut] == [len(tokens) for tokens in lists]
    assert all((np.diff(segment) == 1).all() for segment in cut)
    assert all(set(kept.tolist()) <= set(whole.tolist()) for kept, whole in zip(cut, segments, strict=True))


def test_truncation_cuts_both_ends():
    rng, naive_rng = np.random.default_rng(0), random.Random(0)
    fronts, naive_fronts = [], []
    for _ in range(3000):
        kept, _ = truncate(np.arange(20), np.arange(5), 15, rng)
        fronts.append(int(kept[0]))
        lists = list(range(20)), list(range(5))
        naive_truncate(*lists, 15, naive_rng)
        naive_fronts.append(lists[0][0])
    expected = np.bincount(naive_fronts, minlength=11) / 3000
    assert np.bincount(fronts, minlength=11) / 3000 == pytest.approx(expected, abs=0.035)


@pytest.fixture(scope="module")
def texts() -> Texts:
    return _numbered(60)


@pytest.fixture(scope="module", params=[10**6, 500])
def documents(request, texts, tmp_path_factory) -> Documents:
    return _documents(texts, tmp_path_factory.mktemp("pairs"), request.param)


def _all_draws(pairs: SentencePairs, epochs: int = 8):
    for epoch in range(epochs):
        for item in range(len(pairs)):
            yield item, pairs.pair(epoch * len(pairs) + item, np.random.default_rng([epoch, item]))


def _group(texts: Texts, pairs: SentencePairs, item: int) -> list[list[int]]:
    sentences = [sentence for text in texts for sentence in text]
    return sentences[pairs.groups.starts[item] : pairs.groups.ends[item]]


def test_next_sentences_follow_and_others_come_from_elsewhere(documents, texts):
    pairs = SentencePairs.of(documents, 24, "nsp", seed=0)
    others = []
    for item, (first, second, label) in _all_draws(pairs):
        assert 2 <= len(first) + len(second) <= 24
        assert len(first) and len(second)
        owner = set((first // 1000).tolist())
        assert len(owner) == len(set((second // 1000).tolist())) == 1
        if label:
            assert owner != set((second // 1000).tolist())
            others.append(int(second[0]) // 1000)
            continue
        # Uncut, both are the sentences of the group; a cut takes tokens away at the ends of the segments alone.
        group = _group(texts, pairs, item)
        tokens = [token for sentence in group for token in sentence]
        if len(first) + len(second) == len(tokens):
            assert [*first.tolist(), *second.tolist()] == tokens
            assert second[0] in [sentence[0] for sentence in group[1:]]
        assert first[-1] < second[0]
    counts = np.bincount(others, minlength=61)[1:]
    # Every document is equally likely: 59 degrees of freedom, 0.0001 beyond 112.
    assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 112


def test_half_of_the_pairs_is_random(documents):
    pairs = SentencePairs.of(documents, 24, "nsp", seed=0)
    several = pairs.groups.ends - pairs.groups.starts > 1
    labels = np.array([(several[item], pair.label) for item, pair in _all_draws(pairs, 12)])
    assert labels[labels[:, 0] == 1, 1].mean() == pytest.approx(0.5, abs=0.04)
    assert (labels[labels[:, 0] == 0, 1] == 1).all()  # one sentence has no next one
    assert labels[:, 1].mean() == pytest.approx(pairs.random_share, abs=0.03)


def test_random_segments_are_as_long_as_in_the_naive_version(documents, texts):
    pairs = SentencePairs.of(documents, 24, "nsp", seed=0)
    sizes = [len(first) + len(second) for _, (first, second, label) in _all_draws(pairs, 12) if label]
    rng, naive = random.Random(1), []
    for _ in range(12):
        for item in range(len(pairs)):
            naive.append(_naive_random_pair(texts, _group(texts, pairs, item), int(pairs.groups.targets[item]), rng))
    assert np.mean(sizes) == pytest.approx(np.mean(naive), rel=0.03)
    assert np.std(sizes) == pytest.approx(np.std(naive), rel=0.1)


def _naive_random_pair(texts: Texts, group: list[list[int]], target: int, rng: random.Random) -> int:
    """Return the length of a pair with a random second segment, as create_instances_from_document makes it."""
    split = 1 if len(group) == 1 else rng.randint(1, len(group) - 1)
    first = [token for sentence in group[:split] for token in sentence]
    while True:
        other = rng.choice(texts)
        if other[0][0] // 1000 != first[0] // 1000:
            break
    second: list[int] = []
    for sentence in other[rng.randint(0, len(other) - 1) :]:
        second += sentence
        if len(second) >= target - len(first):
            break
    naive_truncate(first, second, 24, rng)
    return len(first) + len(second)


def test_sentence_order(documents, texts):
    pairs = SentencePairs.of(documents, 24, "sop", seed=0)
    assert (pairs.groups.ends - pairs.groups.starts >= 2).all()
    labels = []
    for _, (first, second, label) in _all_draws(pairs, 12):
        before, after = (second, first) if label else (first, second)
        assert before[-1] < after[0]
        assert before[0] // 1000 == after[0] // 1000
        labels.append(label)
    assert np.mean(labels) == pytest.approx(0.5, abs=0.03)


def test_every_split_is_drawn(documents, texts):
    pairs = SentencePairs.of(documents, 60, "sop", seed=0)
    item = int(np.argmax(pairs.groups.ends - pairs.groups.starts))
    group = _group(texts, pairs, item)
    drawn = [pairs.pair(epoch * len(pairs) + item, np.random.default_rng(epoch)) for epoch in range(600)]
    lengths = np.array([len(pair.second if pair.label else pair.first) for pair in drawn])
    splits = np.cumsum([len(sentence) for sentence in group])[:-1]
    if splits[-1] + len(group[-1]) <= 60:
        assert set(lengths.tolist()) == set(splits.tolist())
    assert len(set(lengths.tolist())) >= len(splits)


def test_lengths(documents):
    pairs = SentencePairs.of(documents, 24, "nsp", seed=0)
    lengths = pairs.lengths_of(np.arange(3 * len(pairs)))
    drawn = list(_all_draws(pairs, 3))
    assert [len(first) + len(second) for _, (first, second, _) in drawn] == lengths.tolist()
    assert len({label for _, (_, _, label) in drawn}) == 2
    some = np.random.default_rng(0).permutation(3 * len(pairs))[:7]
    assert pairs.lengths_of(some).tolist() == lengths[some].tolist()


@pytest.mark.parametrize(
    ("texts", "kind", "room", "message"),
    [
        ([[[5]], [[6, 7]]], "nsp", 9, "each of the 2 documents is one line.*biosqueeze corpus"),
        ([[[5]], [[6, 7]]], "sop", 9, "each of the 2 documents is one line.*biosqueeze corpus"),
        ([[[5], [6, 7]]], "nsp", 9, "a single document; put a blank line"),
        ([[[5], [6, 7]], [[8]]], "nsp", 1, "give 2 or more"),
    ],
)
def test_unsuitable_documents(tmp_path, texts, kind, room, message):
    with pytest.raises(SqueezeError, match=message):
        SentencePairs.of(_documents(texts, tmp_path), room, kind, seed=0)


def test_one_document_has_an_order(tmp_path):
    pairs = SentencePairs.of(_documents([[[5], [6, 7]]], tmp_path), 9, "sop", seed=0)
    assert {pairs.pair(epoch, np.random.default_rng(0)).label for epoch in range(9)} == {0, 1}
