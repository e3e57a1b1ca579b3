"""Every quantizer, family and head: the int8 graph runs at other shapes and nearly agrees with the float graph."""

import numpy as np
import onnxruntime as ort
import pytest

from biosqueeze import environment, registry
from biosqueeze.backends.int8_overflow import overflows
from biosqueeze.backends.parity import random_batches
from biosqueeze.checkpoint import open_checkpoint
from tests import pico

METHODS = [  # static quantization traces a model three times
    pytest.param(method, marks=pytest.mark.slow) if method == "inc-static" else method
    for method in registry.names("quantizers")
]


def test_the_default_cases_have_every_family_and_head() -> None:
    """A family whose code is that of another is tested with that one."""
    families = {row.same_code_as or family for family, row in pico.ROWS.items()}
    assert {family for family, _ in pico.GRAPHS} == families
    assert {head for _, head in pico.GRAPHS} == {head for heads in pico.HEADS_OF.values() for head in heads}


def _outputs(path, batch):
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    types = np.zeros_like(batch["input_ids"])
    return session.run(None, {i.name: batch.get(i.name, types) for i in session.get_inputs()})[0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("family", "head"), pico.GRAPHS)
def test_every_family_and_head(method, family, head, exported, quantized_graph, monkeypatch) -> None:
    monkeypatch.setattr(environment, "lacks_vnni", lambda: True)
    source = open_checkpoint(str(exported(family, head)))
    float_graph, int8 = source.path / "onnx" / "model.onnx", quantized_graph(method, family, head)
    vocabulary, padding = source.config["vocab_size"], source.config["pad_token_id"]
    assert int8.notes["int8_embedding_tables"] >= 1
    assert int8.path.stat().st_size < 0.75 * float_graph.stat().st_size
    for batch in random_batches(vocabulary, 64, padding):
        expected, actual = (_outputs(path, batch) for path in (float_graph, int8.path))
        real = batch["attention_mask"] == 1
        if expected.shape[:2] == real.shape:
            expected, actual = expected[real], actual[real]
        cosine = (expected * actual).sum() / np.linalg.norm(expected) / np.linalg.norm(actual)
        assert cosine > 0.99
        assert (expected != actual).any()
    assert not overflows(int8.path)
