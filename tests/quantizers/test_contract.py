"""Every quantizer, family and head: the int8 graph runs at other shapes and nearly agrees with the float graph."""

import os

import numpy as np
import onnxruntime as ort
import pytest

from biosqueeze import registry
from biosqueeze.backends.parity import random_batches
from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.quantizers import QuantizationJob
from tests import pico

# Tracing for static ranges takes seconds: by default every family once, and every head; the rest by
# BIOSQUEEZE_CONTRACTS=all.
_DEFAULT = {
    ("bert", "mlm"),
    ("bert", "base"),
    ("roberta", "question-answering"),
    ("electra", "discriminator"),
    ("distilbert", "token-classification"),
    ("albert", "mlm"),
    ("mobilebert", "sequence-classification"),
}
_CASES = [(family, head) for family in pico.FAMILIES for head in pico.HEADS_OF[family]]


def test_the_default_cases_have_every_family_and_head() -> None:
    assert set(_CASES) >= _DEFAULT
    for column in (0, 1):
        assert {case[column] for case in _DEFAULT} == {case[column] for case in _CASES}


def _outputs(path, batch):
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    types = np.zeros_like(batch["input_ids"])
    return session.run(None, {i.name: batch.get(i.name, types) for i in session.get_inputs()})[0]


@pytest.mark.parametrize("method", registry.names("quantizers"))
@pytest.mark.parametrize(
    ("family", "head"), _CASES if os.environ.get("BIOSQUEEZE_CONTRACTS") == "all" else sorted(_DEFAULT)
)
def test_every_family_and_head(method, family, head, exported, tmp_path) -> None:
    source = open_checkpoint(str(exported(family, head)))
    float_graph, target = source.path / "onnx" / "model.onnx", tmp_path / "int8.onnx"
    vocabulary, padding = source.config["vocab_size"], source.config["pad_token_id"]
    batches = [batch for seed in range(4) for batch in random_batches(vocabulary, 64, padding, seed=seed + 1)]
    job = QuantizationJob(checkpoint=source, source=float_graph, target=target, batches=batches)
    facts = registry.load("quantizers", method).quantize(job)
    assert facts["int8_embedding_tables"] >= 1
    assert target.stat().st_size < 0.75 * float_graph.stat().st_size
    for batch in random_batches(vocabulary, 64, padding):
        expected, actual = (_outputs(path, batch) for path in (float_graph, target))
        real = batch["attention_mask"] == 1
        if expected.shape[:2] == real.shape:
            expected, actual = expected[real], actual[real]
        cosine = (expected * actual).sum() / np.linalg.norm(expected) / np.linalg.norm(actual)
        assert cosine > 0.99
        assert (expected != actual).any()
