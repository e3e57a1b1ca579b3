"""tasks/encoding/sequences.py: framing and truncation against the tokenizer's own, and scores against scipy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from biosqueeze.errors import SqueezeError
from biosqueeze.tasks.encoding import sequences
from tests import pico

TOKENIZERS = {family: pico.tokenizer_of(family) for family in ("bert", "roberta", "distilbert", "albert")}
WORDS = st.lists(st.sampled_from(pico.words()[:40]), min_size=1, max_size=30).map(" ".join)
FAMILY = st.sampled_from(sorted(TOKENIZERS))
ROWS = st.lists(st.lists(st.floats(-800, 800, width=32), min_size=3, max_size=3), min_size=1, max_size=8)


@given(FAMILY, WORDS, WORDS, st.integers(8, 60))
@settings(max_examples=60, deadline=None)
def test_pair_equals_the_tokenizer_s(family, first, second, length):
    tokenizer = TOKENIZERS[family]
    (mine,) = sequences.encode_sequences([(first, second)], tokenizer, length)
    theirs = tokenizer(first, second, truncation="longest_first", max_length=length, return_token_type_ids=True)
    assert mine["input_ids"].tolist() == theirs["input_ids"]
    assert mine["token_type_ids"].tolist() == theirs["token_type_ids"]


@given(FAMILY, st.lists(WORDS, min_size=1, max_size=4), st.integers(4, 60))
@settings(max_examples=60, deadline=None)
def test_single_text_equals_the_tokenizer_s(family, texts, length):
    tokenizer = TOKENIZERS[family]
    mine = sequences.encode_sequences([(text,) for text in texts], tokenizer, length)
    assert [one["input_ids"].tolist() for one in mine] == [
        tokenizer(text, truncation=True, max_length=length)["input_ids"] for text in texts
    ]
    assert all(set(one) == {"input_ids"} for one in mine)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(2, 60))
@settings(max_examples=60, deadline=None)
def test_kept_lengths_equal_bert_s_truncation(first, second, room):
    lengths = [first, second]
    while sum(lengths) > room:
        lengths[lengths[1] > lengths[0] or (lengths[0] == lengths[1] and second >= first)] -= 1
    kept = sequences.kept_lengths(first, second, room)
    assert sum(kept) == sum(lengths)
    assert sorted(kept) == sorted(lengths)
    if min(first, second) <= room // 2:
        assert min(first, second) in kept  # the shorter text is whole


def test_bert_pair_has_token_types_of_both_texts():
    (one,) = sequences.encode_sequences([("cells", "gene protein")], TOKENIZERS["bert"], 20)
    assert one["token_type_ids"].tolist() == [0, 0, 0, 1, 1, 1]


def test_truncation_is_warned_of_once(capsys):
    inputs = [("cells " * 30,), ("gene",), ("protein " * 10,)]
    sequences.encode_sequences(inputs, TOKENIZERS["bert"], 8)
    said = capsys.readouterr().err
    assert "2 of 3 inputs are longer than 8 tokens (the longest has 32)" in said
    assert said.count("warning") == 1
    sequences.encode_sequences(inputs, TOKENIZERS["bert"], 32)
    assert capsys.readouterr().err == ""


def test_no_room_for_text_is_explained():
    with pytest.raises(SqueezeError, match="--max-length 5 or more"):
        sequences.encode_sequences([("a", "b")], TOKENIZERS["bert"], 4)


def test_no_examples_are_no_windows():
    assert sequences.encode_sequences([], TOKENIZERS["bert"], 8) == []


def test_windows_have_labels_and_logits_follow_examples():
    examples = [sequences.TextExample(("cells",), "b"), sequences.TextExample(("gene",), "a")]
    windows = sequences.sequence_windows(
        examples, sequences.class_features(examples, ("a", "b")), TOKENIZERS["bert"], 8
    )
    assert [int(window.features["labels"]) for window in windows] == [1, 0]
    assert all(window.features["labels"].shape == () for window in windows)
    logits = [np.array([0.0, 1.0], np.float32), np.array([2.0, 0.0], np.float32)]
    rows = sequences.logits_by_example(windows[::-1], logits[::-1], 2)
    assert sequences.likeliest_labels(rows, ("a", "b")) == ["b", "a"]
    with pytest.raises(ValueError, match="one window"):
        sequences.logits_by_example(windows[:1], logits[:1], 2)


def test_unknown_label_is_refused():
    with pytest.raises(SqueezeError, match=r"dev.tsv:4: the label 'c' is not a label of the model \(a, b\)"):
        sequences.class_features([sequences.TextExample(("x",), "c", where="dev.tsv:4")], ("a", "b"))
    assert sequences.class_features([sequences.TextExample(("x",), None)], ("a", "b")) == [{}]


@given(ROWS)
@settings(max_examples=60, deadline=None)
def test_probabilities_equal_scipy(values):
    rows = np.array(values, dtype=np.float32)
    np.testing.assert_allclose(sequences.softmax(rows), special.softmax(rows.astype(float), axis=-1), atol=1e-12)
    np.testing.assert_allclose(sequences.sigmoid(rows), special.expit(rows.astype(float)), atol=1e-12)


def test_description_has_all_probabilities():
    (one,) = sequences.describe_classes(np.array([[0.0, np.log(3)]], np.float32), ("no", "yes"))
    assert one["label"] == "yes"
    assert one["score"] == pytest.approx(0.75)
    assert one["scores"] == pytest.approx({"no": 0.25, "yes": 0.75})
