"""Sources of pretraining: what is in their features, that they depend on the position alone, and what is held out."""

import json
import pickle
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from biosqueeze.data.feature_keys import IGNORED
from biosqueeze.data.text.mask_rate import MaskRate
from biosqueeze.errors import SqueezeError
from biosqueeze.pretraining.data import load_pretraining_data
from biosqueeze.pretraining.data_settings import PretrainingDataSettings
from biosqueeze.pretraining.options import PretrainingOptions
from biosqueeze.pretraining.pipeline import _read_texts
from biosqueeze.pretraining.sources import MaskedPairs
from biosqueeze.training.batches import BatchSchedule, loader
from biosqueeze.training.resuming.hashes import source_hash
from tests import pico
from tests.training.item_draws import rng_of

LENGTH = 32
PAIRS = ("nsp", "sop")
KINDS = (None, *PAIRS)


@pytest.fixture(autouse=True, scope="module")
def cache_folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BIOSQUEEZE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    return _write(tmp_path_factory.mktemp("text") / "text.txt", _documents(80))


def _documents(count: int, seed: int = 0) -> list[list[str]]:
    sentences = pico.sentences(5 * count, seed)
    return [[next(sentences) for _ in range(1 + number % 5)] for number in range(count)]


def _write(path: Path, documents: list[list[str]]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join("\n".join(document) + "\n\n" for document in documents), encoding="utf-8")
    return path


def _load(*corpus: Path, family: str = "bert", length: int = LENGTH, **settings):
    chosen = PretrainingDataSettings(corpus=tuple(map(str, corpus)), **settings)
    return load_pretraining_data(chosen, pico.shared_tokenizer(family), length)


def _items(source) -> np.ndarray:
    return np.sort(source.draw(0, rng_of(0)))


def _original(features) -> list[int]:
    """The ids before they were masked, without padding."""
    ids = np.where(features["labels"] == IGNORED, features["input_ids"], features["labels"])
    return ids[features.get("segments", np.ones_like(ids)) > 0].tolist()


@pytest.mark.parametrize("unit", ["piece", "word", "span"])
@pytest.mark.parametrize("kind", KINDS)
def test_features_depend_on_the_position_alone(text, kind, unit):
    source = _load(text, pairs=kind, mask_unit=unit).source
    again = pickle.loads(pickle.dumps(_load(text, pairs=kind, mask_unit=unit).source))
    assert source_hash(source) == source_hash(again)
    for item in (3, 0, 3):
        first, second = source.features(item, rng_of(item)), again.features(item, rng_of(item))
        assert all(np.array_equal(first[name], second[name]) for name in first)
    drawn = [source.features(3, rng_of(seed)) for seed in range(9)]
    assert len({tuple(features["labels"].tolist()) for features in drawn}) > 1


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
def test_pairs_have_the_frame_of_the_tokenizer(text, family):
    source = _load(text, family=family, pairs="sop", length=64).source
    tokenizer = pico.shared_tokenizer(family)
    lines = text.read_text().split("\n\n")
    seen = set()
    for item in _items(source):
        found = source.features(item, rng_of(item))
        ids = _original(found)
        segments = _runs(ids, set(tokenizer.all_special_ids) - {tokenizer.unk_token_id})
        assert len(segments) == 2
        texts = [tokenizer.decode(run) for run in segments]
        expected = tokenizer(*texts, return_token_type_ids=True)
        if expected["input_ids"] == ids:  # text that was cut within a word may be encoded in another way
            assert found["token_type_ids"].tolist() == expected["token_type_ids"]
            seen.add(int(found["pair_label"]))
        assert found.keys() == {"input_ids", "token_type_ids", "labels", "pair_label"}
        assert found["pair_label"].shape == ()
        assert len(ids) <= 64
    assert lines and seen == {0, 1}


def _runs(ids: list[int], special: set[int]) -> list[list[int]]:
    runs: list[list[int]] = [[]]
    for number in ids:
        if number in special:
            runs.append([])
        else:
            runs[-1].append(number)
    return [run for run in runs if run]


@pytest.mark.parametrize("kind", PAIRS)
def test_pairs_are_drawn_again_in_each_epoch(text, kind):
    source = _load(text, pairs=kind).source
    drawn = [[source.pairs.pair(int(item), rng_of(0)) for item in source.draw(epoch, rng_of(0))] for epoch in range(3)]
    splits = np.array([[len(pair.first) for pair in epoch] for epoch in drawn])
    assert (splits[0] != splits[1]).mean() > 0.2
    assert (splits[1] != splits[2]).mean() > 0.2
    repeated = _load(text, pairs=kind, maskings=2).source
    assert np.array_equal(repeated.draw(2, rng_of(0)), source.draw(0, rng_of(0)))
    assert np.array_equal(repeated.draw(3, rng_of(0)), source.draw(1, rng_of(0)))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", PAIRS)
def test_batches_of_pairs(text, kind, workers):
    source = _load(text, pairs=kind).source
    schedule = BatchSchedule(source, batch_size=8, seed=0, total=12)
    for batch in loader(schedule, workers):
        # Lengths are known, so that batches of similar length have little padding.
        assert batch["attention_mask"].float().mean() > 0.6
        assert batch["pair_label"].shape == batch["input_ids"].shape[:1]
        assert batch["token_type_ids"].shape == batch["labels"].shape == batch["input_ids"].shape
        masked = (batch["labels"] != IGNORED).sum(dim=1)
        assert (masked >= 1).all()
        assert not (batch["labels"] != IGNORED)[batch["attention_mask"] == 0].any()


def test_a_climbing_rate_follows_the_share_that_is_done(text):
    source = _load(text, mask_rate=MaskRate(0.1, 0.5, 3)).source
    schedule = BatchSchedule(source, batch_size=len(_items(source)), seed=0, total=6)
    shares = [
        float((batch["labels"] != IGNORED).sum() / (batch["input_ids"] > 3).sum()) for batch in loader(schedule, 0)
    ]
    assert shares == pytest.approx([0.1, 0.1, 0.3, 0.3, 0.5, 0.5], abs=0.02)
    late = BatchSchedule(source, batch_size=len(_items(source)), seed=0, total=6, start=4)
    resumed, whole = list(loader(late, 0)), list(loader(schedule, 0))[4:]
    assert all(a[name].equal(b[name]) for a, b in zip(resumed, whole, strict=True) for name in a)


def _sentences_of(source) -> set[tuple[int, ...]]:
    blocks = source.blocks
    return {tuple(blocks.features(item)["input_ids"].tolist()) for item in range(len(blocks))}


def test_texts_are_sentences_of_one_document_joined(text):
    blocks = _load(text, pack=False, length=24).source.blocks
    found = [blocks.features(item)["input_ids"][1:-1].tolist() for item in range(len(blocks))]
    expected = []
    for document in text.read_text().split("\n\n"):
        texts: list[list[int]] = []
        for line in document.split("\n"):
            ids = pico.shared_tokenizer()(line, add_special_tokens=False)["input_ids"] if line else []
            if not ids:
                continue
            if texts and len(texts[-1]) + len(ids) <= 22:
                texts[-1] += ids
            else:
                texts += [ids[start : start + 22] for start in range(0, len(ids), 22)]
        expected += texts
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_of_a_pass_are_counted_without_padding(text, kind):
    data = _load(text, pairs=kind)
    assert data.tokens == sum(len(_original(data.source.features(item, rng_of(0)))) for item in _items(data.source))


def test_byte_level_sentences_keep_the_space_between_them(tmp_path):
    path = _write(tmp_path / "a.txt", [["The gene.", "The protein."], ["cells", "of mice"]])
    blocks = _load(path, family="roberta", pack=False, length=64).source.blocks
    texts = {
        pico.shared_tokenizer("roberta").decode(blocks.features(item)["input_ids"][1:-1]) for item in range(len(blocks))
    }
    assert texts == {"The gene. The protein.", "cells of mice"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_held_out_share_has_whole_documents(text, kind):
    data = _load(text, pairs=kind, held_out=0.3, pack=False, length=128)
    if kind is None:
        train, held = _sentences_of(data.source), _sentences_of(data.held_out.source)
        assert len(train) + len(held) == len(_sentences_of(_load(text, pack=False, length=128).source))
        assert not train & held
    sizes = [len(source) for source in (_documents_of(data.source), _documents_of(data.held_out.source))]
    assert sum(sizes) == 80
    assert 12 <= sizes[1] <= 36
    again = _load(text, pairs=kind, held_out=0.3, pack=False, length=128)
    assert source_hash(again.held_out) == source_hash(data.held_out)


def _documents_of(source) -> range:
    return range(len(source.pairs.documents) if isinstance(source, MaskedPairs) else source.blocks.corpus.texts)


@pytest.mark.parametrize("kind", KINDS)
def test_held_out_text_is_always_masked_in_the_same_way(text, kind):
    held = _load(text, pairs=kind, held_out=0.5, mask_rate=MaskRate(0.05, 0.4, 2)).held_out
    assert np.array_equal(held.draw(0, rng_of(0)), held.draw(1, rng_of(1)))
    for item in _items(held):
        first, second = held.features(item, rng_of(1)), held.features(item, rng_of(2))
        assert all(np.array_equal(first[name], second[name]) for name in first)
    labels = [held.features(item, rng_of(0))["labels"] for item in _items(held)]
    masked = sum((label != IGNORED).sum() for label in labels)
    ordinary = sum((np.array(_original(held.features(item, rng_of(0)))) > 3).sum() for item in _items(held))
    assert masked / ordinary == pytest.approx(0.4, abs=0.03)


def _built(folder: Path, held_out: bool) -> Path:
    """A corpus as `biosqueeze corpus` writes it."""
    _write(folder / "000000-000.txt", _documents(20))
    shards = [{"name": "000000-000.txt", "split": "train"}]
    if held_out:
        _write(folder / "held-out" / "000000-000.txt", _documents(8, seed=1))
        shards.append({"name": "held-out/000000-000.txt", "split": "held-out"})
    (folder / "corpus.json").write_text(json.dumps({"shards": shards}))
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_the_held_out_share_of_a_built_corpus(tmp_path, text, kind):
    data = _load(text, _built(tmp_path / "built", held_out=True), pairs=kind)
    assert len(_documents_of(data.source)) == 100
    assert len(_documents_of(data.held_out.source)) == 8
    assert _load(_built(tmp_path / "other", held_out=False), pairs=kind).held_out is None


def test_one_document_corpus_serves_every_length(text, capsys):
    _load(text, pairs="nsp", length=40)
    _load(text, pairs="nsp", length=64)
    assert "prepared earlier" in capsys.readouterr().err


def test_a_length_at_which_most_pairs_are_random_is_said(text, capsys):
    _load(text, pairs="nsp", length=10)
    assert "% of the pairs have a random second segment" in " ".join(capsys.readouterr().err.split())
    _load(text, pairs="nsp", length=128)
    assert "random second segment" not in capsys.readouterr().err


def test_longer_sequences_hold_more_of_a_document(tmp_path):
    path = _write(tmp_path / "long.txt", [list(pico.sentences(30, seed)) for seed in range(2)])
    short, long = (_load(path, pack=False, length=length).source.blocks for length in (32, 128))
    assert short.lengths_of(np.arange(len(short))).max() <= 32
    assert long.lengths_of(np.arange(len(long))).mean() > 90


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"held_out": 1e-9}, "held-out text: a held-out share of 1e-09 takes none"),
        ({"held_out": 1 - 1e-9}, "leaves no document"),
        ({"pairs": "nsp", "length": 4}, "give 2 or more"),
        ({"length": 2}, "--max-length 3 or more"),
    ],
)
def test_unsuitable_settings(text, settings, message):
    with pytest.raises(SqueezeError, match=message):
        _load(text, **settings)


def test_a_tokenizer_without_a_mask_token(text):
    tokenizer = pico.tokenizer_of("bert")
    tokenizer.mask_token = None
    with pytest.raises(SqueezeError, match="no mask token"):
        load_pretraining_data(PretrainingDataSettings(corpus=(str(text),)), tokenizer, LENGTH)


def test_held_out_text_is_read_at_the_last_length_alone(text: Path, own_cache: Path) -> None:
    options = PretrainingOptions(corpus=(str(text),), held_out=0.5, max_length=24, long_length=40)
    model = SimpleNamespace(config=pico.config_of("bert", 50))
    start = SimpleNamespace(tokenizer=pico.shared_tokenizer(), positions=pico.POSITIONS, model=model)
    texts = _read_texts(SimpleNamespace(options=options), start)
    assert max(texts.held_out.length(_items(texts.held_out))) > 24
    prepared = {path.parent for path in (own_cache / "tokens").rglob("*.json")}
    assert len(prepared) == 3, prepared
