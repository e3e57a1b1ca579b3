"""Batching by length: the same predictions, in the given order."""

import json
import subprocess
import sys
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biosqueeze.backends.predict import predict_all


class Echo:
    """Logits that tell what was seen: the id, the batch's length and the mask, (batch, length, 3)."""

    device = "cpu"

    def __init__(self) -> None:
        self.shapes = []

    def predict(self, batch):
        ids, mask = batch["input_ids"], batch["attention_mask"]
        self.shapes.append(ids.shape)
        return np.stack([ids, np.full_like(ids, ids.shape[1]), mask], axis=-1).astype(np.float32)


def features(lengths):
    return [{"input_ids": np.arange(100 * i, 100 * i + n)} for i, n in enumerate(lengths, start=1)]


@given(st.lists(st.integers(1, 40), max_size=30), st.integers(1, 8))
def test_order_and_lengths_are_kept(lengths, batch_size) -> None:
    echo = Echo()
    actual = predict_all(echo, features(lengths), 0, batch_size)
    assert [len(part) for part in actual] == lengths
    for part, feature in zip(actual, features(lengths), strict=True):
        np.testing.assert_array_equal(part[:, 0], feature["input_ids"])
        assert (part[:, 2] == 1).all()
    assert all(rows <= batch_size for rows, _ in echo.shapes)


def test_similar_lengths_share_a_batch() -> None:
    echo = Echo()
    predict_all(echo, features([3, 50, 4, 49, 2, 48]), 0, 3)
    assert echo.shapes == [(3, 50), (3, 4)]


def test_results_do_not_hold_the_padded_batch() -> None:
    assert all(part.base is None for part in predict_all(Echo(), features([3, 9]), 0, 2))


def test_whole_sequence_classifier_keeps_its_row() -> None:
    class Classifier(Echo):
        def predict(self, batch):
            return batch["input_ids"][:, :1].astype(np.float32) * [1, 2]

    actual = predict_all(Classifier(), features([1, 7]), 0, 2)
    assert [part.tolist() for part in actual] == [[100, 200], [200, 400]]


def test_no_sequences() -> None:
    assert predict_all(Echo(), [], 0, 4) == []


def test_features_of_a_task_pass_through() -> None:
    actual = predict_all(Echo(), [{"input_ids": np.array([7, 8]), "labels": np.array([0, 1])}], 0, 4)
    assert actual[0][:, 0].tolist() == pytest.approx([7, 8])


def test_batches_are_halved_when_out_of_memory() -> None:
    echo, sizes = Echo(), []

    def predict(batch):
        sizes.append(len(batch["input_ids"]))
        if sizes[-1] > 3:
            raise MemoryError
        return echo.predict(batch)

    narrow = SimpleNamespace(predict=predict, device="cpu")
    lengths = [3, 9, 4, 4, 7, 2, 5]
    actual, whole = (predict_all(predictor, features(lengths), 0, 7) for predictor in (narrow, echo))
    seen = [0, 2]  # the length of the batch is another
    assert all(np.array_equal(halved[:, seen], full[:, seen]) for halved, full in zip(actual, whole, strict=True))
    assert sizes == [7, 3, 3, 1]
    nothing_fits = SimpleNamespace(predict=mock.Mock(side_effect=MemoryError), device="cpu")
    with pytest.raises(MemoryError):
        predict_all(nothing_fits, features([3]), 0, 7)


_PREDICT = """
import json
import sys

import numpy as np

from biosqueeze.backends import open_predictor
from biosqueeze.backends.predict import predict_all
from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.system import memory

SEQUENCES, LENGTH = 4096, 60
predictor, sizes = open_predictor(open_checkpoint(sys.argv[1]), sys.argv[2], threads=1), []
compute = predictor.predict


def predict(batch):
    output = compute(batch)
    sizes.append(len(output))
    return output


predictor.predict = predict
memory.available_memory = lambda: 100 * 2**20
features = [{"input_ids": np.full(LENGTH, i % 60), "attention_mask": np.ones(LENGTH, int)} for i in range(SEQUENCES)]
rows = predict_all(predictor, features, 0, SEQUENCES)
alone = predict_all(predictor, features[:2], 0, 1)
print(json.dumps({"sizes": sizes, "error": max(float(np.abs(a - b).max()) for a, b in zip(rows, alone))}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux only")
@pytest.mark.parametrize("backend", ["onnxruntime", "torch"])
def test_batches_fit_into_the_memory_of_the_cpu(backend: str, exported) -> None:
    """In a fresh process: the heap of this one may have room."""
    words = [sys.executable, "-c", _PREDICT, str(exported("bert", "token-classification")), backend]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    found = json.loads(ended.stdout)
    *sizes, _, _ = found["sizes"]
    assert sum(sizes) == 4096
    assert 1 < max(sizes) < 4096
    assert found["error"] < 1e-5
    assert "Error" not in ended.stderr
