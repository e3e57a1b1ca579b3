import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biosqueeze import registry
from biosqueeze.data.collate import pad
from biosqueeze.errors import SqueezeError
from biosqueeze.tasks import open_task
from biosqueeze.tasks.encoding.word_windows import _owner
from biosqueeze.tasks.readers.tagged import Sentence
from tests import pico
from tests.tasks.tagging import perfect

KIND = open_task("ner")
LABELS = ("O", "B-Disease", "B-Gene", "I-Disease", "I-Gene")
WORDS = ("the", "carcino", "BRCA1", "hepatitis", "(", "-", "x" * 40, "\u200b", "é", "naïveté", "12.5", "[SEP]")


def _tags() -> st.SearchStrategy[list[str]]:
    """Valid BIO: entities of one to three words with gaps of any size, also none."""
    entity = st.tuples(st.sampled_from(["Disease", "Gene"]), st.integers(0, 2)).map(
        lambda e: [f"B-{e[0]}"] + [f"I-{e[0]}"] * e[1]
    )
    return st.lists(st.one_of(st.just(["O"]), entity), max_size=20).map(
        lambda parts: [tag for part in parts for tag in part]
    )


@st.composite
def _sentence(draw) -> Sentence:
    tags = draw(_tags().filter(bool))
    return Sentence(tuple(draw(st.sampled_from(WORDS)) for _ in tags), tuple(tags))


def test_kind_has_the_methods_of_the_protocol():
    assert "ner" in registry.names("tasks")
    assert (KIND.HEAD, KIND.METRIC) == ("token-classification", "f1")
    methods = ("with_scheme", "read", "encode", "decode", "score", "example_from_record", "describe")
    assert all(callable(getattr(KIND, name)) for name in methods)


@pytest.mark.parametrize("family", pico.FAMILIES)
@settings(deadline=None)
@given(sentences=st.lists(_sentence(), max_size=4), max_length=st.sampled_from([3, 4, 16, 128]))
def test_windows_decode_to_every_tag(family, max_length, sentences):
    windows = KIND.encode(sentences, LABELS, pico.shared_tokenizer(family), max_length)
    decoded = KIND.decode(windows, perfect(windows, len(LABELS)), sentences, LABELS)
    assert decoded == [list(s.tags) for s in sentences]
    assert all(3 <= len(w.input_ids) <= max_length for w in windows)


@pytest.mark.parametrize("family", pico.FAMILIES)
@settings(deadline=None)
@given(sentences=st.lists(_sentence(), max_size=4), max_length=st.integers(3, 40))
def test_each_word_belongs_to_one_window(family, sentences, max_length):
    windows = KIND.encode(sentences, LABELS, pico.shared_tokenizer(family), max_length)
    owned = sorted((w.example, word) for w in windows for word in w.words.tolist() if word >= 0)
    assert owned == [(i, word) for i, s in enumerate(sentences) for word in range(len(s.words))]
    for window in windows:
        tags = sentences[window.example].tags
        for word, label in zip(window.words, window.labels, strict=True):
            assert label == (-100 if word < 0 else LABELS.index(tags[word]))
        assert window.words[0] == window.words[-1] == -1  # special tokens
    assert [w.example for w in windows] == sorted(w.example for w in windows)


@pytest.mark.parametrize("family", pico.FAMILIES)
def test_short_sentence_is_tokenised_like_its_text(family):
    tokenizer = pico.shared_tokenizer(family)
    words = ["the", "patients", "with", "carcino", "in", "cells"]
    (window,) = KIND.encode([Sentence(tuple(words), ("O",) * 6)], LABELS, tokenizer, 64)
    # A byte-level tokenizer marks the word after a space: the first word is given one too.
    text = (" " if family in ("roberta", "modernbert", "eurobert", "longformer") else "") + " ".join(words)
    assert window.input_ids.tolist() == tokenizer(text)["input_ids"]


def test_only_first_sub_words_are_labelled():
    tokenizer = pico.shared_tokenizer("bert")
    (window,) = KIND.encode([Sentence(("qqq", "the"), ("B-Gene", "O"))], LABELS, tokenizer, 16)
    assert tokenizer.convert_ids_to_tokens(window.input_ids) == ["[CLS]", "q", "##q", "##q", "the", "[SEP]"]
    assert window.labels.tolist() == [-100, 2, -100, -100, 0, -100]
    assert window.words.tolist() == [-1, 0, -1, -1, 1, -1]


def test_dropped_word_becomes_unknown_token():
    tokenizer = pico.shared_tokenizer("bert")
    sentence = Sentence(("\u200b", "the", "\ufeff", "\u200b"), ("B-Gene", "O", "B-Gene", "I-Gene"))
    (window,) = KIND.encode([sentence], LABELS, tokenizer, 16)
    unk, the = tokenizer.unk_token_id, tokenizer.convert_tokens_to_ids("the")
    assert window.input_ids.tolist()[1:-1] == [unk, the, unk, unk]
    assert window.words.tolist()[1:-1] == [0, 1, 2, 3]


def test_words_belong_to_the_window_with_most_context():
    tokenizer = pico.shared_tokenizer("bert")
    sentence = Sentence(("the",) * 30, ("O",) * 30)
    windows = KIND.encode([sentence], LABELS, tokenizer, 12)
    for window in windows[1:-1]:
        owned = np.flatnonzero(window.words >= 0)
        assert owned.min() > 2  # at least a quarter of the window before it
        assert owned.max() < 11 - 2
    assert windows[0].words[1] == 0
    assert windows[-1].words[-2] == 29


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 25)), max_size=12))
def test_owners_equal_exhaustive_search(drawn):
    spans = [(start, min(start + size, 60)) for start, size in drawn]
    table = np.full((len(spans) + 1, 60), -1)  # one more, so that there is a maximum where there is no span
    for number, (start, end) in enumerate(spans):
        from_left = np.arange(end - start)
        table[number, start:end] = np.minimum(from_left, from_left[::-1])
    assert _owner(spans, 60).tolist() == table.argmax(axis=0).tolist()


def test_owners_of_long_text_need_little_memory():
    spans = [(start, start + 4) for start in range(0, 100_000, 2)]  # a table of them all would take 40 GB
    assert _owner(spans, 100_002)[-4:].tolist() == [49_998, 49_999, 49_999, 49_999]


def test_windows_begin_at_words():
    tokenizer = pico.shared_tokenizer("bert")
    sentence = Sentence(("qqq",) * 12, ("O",) * 12)
    for window in KIND.encode([sentence], LABELS, tokenizer, 18):
        assert not tokenizer.convert_ids_to_tokens(window.input_ids)[1].startswith("##")


def test_features_collate():
    tokenizer = pico.shared_tokenizer("bert")
    examples = [Sentence(("the", "cells"), ("O", "B-Gene")), Sentence(("the",), ("O",))]
    batch = pad([w.features for w in KIND.encode(examples, LABELS, tokenizer, 16)], tokenizer.pad_token_id)
    assert {name: array.shape for name, array in batch.items()} == dict.fromkeys(
        ("input_ids", "labels", "words", "attention_mask"), (2, 4)
    )
    assert batch["labels"].tolist() == [[-100, 0, 2, -100], [-100, 0, -100, -100]]


def test_unknown_label_is_refused():
    with pytest.raises(SqueezeError, match=r"label B-Drug, and the model has only O, B-Disease"):
        KIND.encode([Sentence(("x",), ("B-Drug",))], LABELS, pico.shared_tokenizer("bert"), 16)


def _entities(sentences: list[list[str]]) -> set[tuple[int, int, int, str]]:
    """(sentence, start, end, type) of valid BIO, by the definition."""
    found = set()
    for number, tags in enumerate(sentences):
        for start, tag in enumerate(tags):
            if tag[0] == "B":
                end = start + 1
                while end < len(tags) and tags[end] == "I" + tag[1:]:
                    end += 1
                found.add((number, start, end, tag[2:]))
    return found


@given(pairs=st.lists(st.tuples(_tags(), _tags()), min_size=1, max_size=5))
def test_score_by_hand(pairs):
    gold = [a + ["O"] * (len(b) - len(a)) for a, b in pairs]
    predicted = [b + ["O"] * (len(a) - len(b)) for a, b in pairs]
    true, guessed = _entities(gold), _entities(predicted)
    hits = len(true & guessed)
    scores = KIND.score(gold, predicted)
    assert scores["support"] == len(true)
    assert scores["precision"] == pytest.approx(hits / len(guessed) if guessed else 0)
    assert scores["recall"] == pytest.approx(hits / len(true) if true else 0)
    assert scores["f1"] == pytest.approx(2 * hits / (len(true) + len(guessed)) if hits else 0)
    for kind in {entity[3] for entity in true | guessed}:
        of_kind = [{e for e in part if e[3] == kind} for part in (true, guessed, true & guessed)]
        expected = 2 * len(of_kind[2]) / (len(of_kind[0]) + len(of_kind[1]))
        assert scores[f"f1-{kind}"] == pytest.approx(expected)
        assert scores[f"support-{kind}"] == len(of_kind[0])


def test_score_of_io_and_of_tags_without_a_type():
    assert KIND.score([["I-A", "I-A", "O"]], [["I-A", "I-A", "O"]])["f1"] == 1
    assert KIND.score([["B", "I", "O", "B"]], [["B", "I", "O", "O"]])["recall"] == 0.5


def test_many_sentences_encode_quickly(benchmark_seconds=20):
    """A guard against quadratic work, generous enough for a busy machine."""
    import time

    rng = random.Random(0)
    examples = [Sentence(tuple(rng.choices(pico.words(), k=25)), ("O",) * 25) for _ in range(5000)]
    started = time.monotonic()
    assert len(KIND.encode(examples, LABELS, pico.shared_tokenizer("bert"), 128)) == 5000
    assert time.monotonic() - started < benchmark_seconds


def test_entities_end_with_their_sentence():
    task, tokenizer = open_task("ner"), pico.tokenizer_of("bert")
    labels = ("O", "I-Disease")
    (sentence,) = [task.example_from_record({"text": "Breast cancer\nBreast cancer kills"})]
    windows = task.encode([sentence], labels, tokenizer, 64)
    inside = np.array([0.0, 9.0], dtype=np.float32)
    logits = [np.tile(inside, (len(window.input_ids), 1)) for window in windows]
    (told,) = task.describe(windows, logits, [sentence], labels)
    assert [one["text"] for one in told["entities"]] == ["Breast cancer", "Breast cancer kills"]
