"""Classification: texts as windows, and what is read from their logits."""

import math

import numpy as np
import pytest

from biosqueeze.errors import UsageError
from biosqueeze.tasks.classification import Kind
from tests import pico
from tests.error_messages import explained
from tests.tasks.classification_data import read, table, write

NAMES = ("a", "b", "c", "d")


def test_single_windows_and_predictions():
    task = Kind().with_scheme("single")
    examples = [
        task.example_from_record({"text": "cells"}),
        task.example_from_record({"title": "gene", "abstract": "protein", "pmid": 7}),
    ]
    assert examples[1].texts == ("gene protein",)
    assert examples[1].id == "7"
    windows = task.encode(examples, NAMES, pico.tokenizer_of("bert"), 16)
    assert all("labels" not in window.features for window in windows)
    logits = [np.array([0, 3, 1, 0], np.float32), np.array([0, 0, 0, 1], np.float32)]
    assert task.decode(windows, logits, examples, NAMES) == ["b", "d"]
    assert task.describe(windows, logits, examples, NAMES)[0]["label"] == "b"


def test_multi_windows_and_predictions(tmp_path):
    task = Kind().with_scheme("multi")
    assert (task.METRIC, Kind().with_scheme("single").METRIC) == ("f1", "macro_f1")
    labels = {"train": ["a;c", "", "b"], "dev": ["b"], "test": ["", "a"]}
    examples = read(write(tmp_path, "tsv", **table(labels))).splits["train"]
    windows = task.encode(examples, ("a", "b", "c"), pico.tokenizer_of("bert"), 16)
    assert [window.features["targets"].tolist() for window in windows] == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert windows[0].features["targets"].dtype == np.float32
    logits = [np.array(row, np.float32) for row in ([2, -1, 3], [-1, -1, -1], [0, 0.1, -0.1])]
    decoded = task.decode(windows, logits, examples, ("a", "b", "c"))
    assert decoded == [{"a", "c"}, set(), {"b"}]
    assert task.score([example.gold for example in examples], decoded)["f1"] == 1.0
    described = task.describe(windows, logits, examples, ("a", "b", "c"))
    assert described[0]["labels"] == ["c", "a"]
    assert described[0]["scores"]["a"] == pytest.approx(1 / (1 + math.exp(-2)))
    assert described[1]["labels"] == []
    explained(lambda: task.encode(examples, ("a", "b"), pico.tokenizer_of("bert"), 16), "train.tsv:2", "'c'")


def test_record_without_text_is_refused():
    explained(lambda: Kind().example_from_record({"words": "x"}), "no column for 'text'", "--column text=NAME")
    explained(lambda: Kind().example_from_record({"text": " "}), "no text")
    with pytest.raises(UsageError, match="single or multi"):
        Kind().with_scheme("span")
