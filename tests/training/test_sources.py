import pickle

import numpy as np
import pytest

from biosqueeze.data.feature_keys import IGNORED
from biosqueeze.data.text.prepared import prepare_corpus
from biosqueeze.training.batches import BatchSchedule, loader
from biosqueeze.training.sources import MaskedBlocks, Mixture
from tests import pico
from tests.training.item_draws import rng_of

LENGTH = 48


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> str:
    return str(pico.write_sentences(tmp_path_factory.mktemp("sources") / "corpus.txt", 120))


def _blocks(path: str, pack: bool, family: str = "bert"):
    return prepare_corpus([path], "text", pico.shared_tokenizer(family), LENGTH, pack=pack)


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("pack", [True, False])
def test_masked_blocks(path, pack, family):
    tokenizer, blocks = pico.shared_tokenizer(family), _blocks(path, pack, family)
    source = MaskedBlocks.of(blocks, tokenizer, 0.15)
    special = set(tokenizer.all_special_ids)
    hidden = ordinary = 0
    for item in source.draw(0, rng_of(0)):
        found, block = source.features(int(item), rng_of(item)), blocks.features(int(item))
        labels, chosen = found["labels"], found["labels"] != IGNORED
        assert np.where(chosen, labels, found["input_ids"]).tolist() == block["input_ids"].tolist()
        assert not set(labels[chosen].tolist()) & special
        assert found.keys() == {*block, "labels"}
        assert all(np.array_equal(found[name], block[name]) for name in block if name != "input_ids")
        hidden += int(chosen.sum())
        ordinary += int((~np.isin(block["input_ids"], list(special))).sum())
    assert hidden / ordinary == pytest.approx(0.15, abs=0.02)


@pytest.mark.parametrize("pack", [True, False])
def test_features_depend_on_the_item_and_its_generator_alone(path, pack):
    source = MaskedBlocks.of(_blocks(path, pack), pico.shared_tokenizer(), 0.3)
    again = pickle.loads(pickle.dumps(source))
    for item in (3, 0, 5, 3):
        first, second = source.features(item, rng_of(item)), again.features(item, rng_of(item))
        assert all(np.array_equal(first[name], second[name]) for name in first)
    assert not np.array_equal(source.features(3, rng_of(3))["labels"], source.features(3, rng_of(4))["labels"])


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_of_packed_blocks(path, workers):
    blocks = _blocks(path, pack=True)
    source = MaskedBlocks.of(blocks, pico.shared_tokenizer(), 0.15)
    schedule = BatchSchedule(source, batch_size=4, seed=0, total=-(-len(blocks) // 4))
    texts = 0
    for batch in loader(schedule, workers):
        assert {values.shape[1] for values in batch.values()} == {LENGTH}
        assert batch["attention_mask"].equal((batch["segments"] > 0).long())
        assert not (batch["labels"] != IGNORED)[batch["attention_mask"] == 0].any()
        # Each text starts with [CLS] at position 0.
        starts = (batch["positions"] == 0) & (batch["attention_mask"] == 1)
        assert (batch["input_ids"][starts] == pico.shared_tokenizer().cls_token_id).all()
        texts += int(starts.sum())
    assert texts == 120


def test_packed_blocks_are_fewer_and_hold_the_same(path):
    packed, single = (MaskedBlocks.of(_blocks(path, pack), pico.shared_tokenizer(), 0.15) for pack in (True, False))
    items = packed.draw(0, rng_of(0))
    assert len(items) < len(single.draw(0, rng_of(0))) / 2
    assert set(packed.length(items).tolist()) == {LENGTH}
    tokens = sum(int((packed.features(int(item), rng_of(item))["segments"] > 0).sum()) for item in items)
    assert tokens == single.length(single.draw(0, rng_of(0))).sum()


def _labelled(count: int) -> list[dict[str, np.ndarray]]:
    sizes = range(5, 5 + count)
    return [{"input_ids": np.full(n, 9), "labels": np.zeros(n, dtype=np.int64), "words": np.arange(n)} for n in sizes]


def test_a_mixture_of_labelled_and_unlabelled_text(path):
    blocks = _blocks(path, pack=False)
    source = Mixture(_labelled(10), blocks, 2.0, 0)
    items = source.draw(0, rng_of(0))
    assert sorted(items[:10]) == list(range(10))
    assert len(items) == 30
    assert len(set(items.tolist())) == 30
    for item, length in zip(items, source.length(items), strict=True):
        found = source.features(int(item), rng_of(item))
        assert found.keys() == ({"input_ids", "labels"} if item < 10 else {"input_ids"})
        assert len(found["input_ids"]) == length
    assert not np.array_equal(items, source.draw(1, rng_of(1)))


def test_a_mixture_of_one_kind(path):
    known = Mixture(_labelled(4), None, 5.0, 0)
    assert known.draw(0, rng_of(0)).tolist() == [0, 1, 2, 3]
    assert known.length(np.array([3, 0])).tolist() == [8, 5]
    with pytest.raises(IndexError):
        known.features(4, rng_of(0))
    unknown = Mixture([], _blocks(path, pack=False), 1.0, 0)
    assert sorted(unknown.draw(0, rng_of(0))) == list(range(120))
    assert unknown.features(7, rng_of(0))["input_ids"].tolist() == unknown.unlabelled.features(7)["input_ids"].tolist()


def test_more_unlabelled_text_than_there_is(path):
    source = Mixture(_labelled(100), _blocks(path, pack=False), 3.0, 0)
    items = source.draw(0, rng_of(0))
    assert len(items) == 400
    assert items.max() < 220


@pytest.mark.parametrize("unit", ["word", "span"])
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_whole_words_of_packed_blocks(path, family, unit):
    tokenizer, blocks = pico.shared_tokenizer(family), _blocks(path, True, family)
    source = MaskedBlocks.of(blocks, tokenizer, 0.3, unit)
    starts, special = source.masking.starts, tokenizer.all_special_ids
    borders = 0
    for item in range(len(blocks)):
        block, labels = blocks.features(item), source.features(item, rng_of(item))["labels"]
        ids, chosen = block["input_ids"], labels != IGNORED
        ordinary = ~np.isin(ids, special)
        within = ordinary[1:] & ordinary[:-1] & ~starts[ids[1:]]
        assert (chosen[1:] == chosen[:-1])[within].all()
        borders += int((chosen[1:] != chosen[:-1])[~within].sum())
    assert borders > 100


@pytest.mark.parametrize("ratio", [0.5, 1.0, 3.0])
def test_how_many_sequences_are_unlabelled(path, ratio):
    blocks = _blocks(path, pack=False)
    labelled = [{"input_ids": np.arange(5), "labels": np.zeros(5)} for _ in range(40)]
    source = Mixture(labelled, blocks, ratio, 0)
    schedule = BatchSchedule(source, 4, seed=0, total=3 * round(40 * (1 + ratio)) // 4)
    drawn = [item >= len(labelled) for batch in schedule for _, item in batch]
    assert source.unlabelled_among(len(drawn)) == sum(drawn)
