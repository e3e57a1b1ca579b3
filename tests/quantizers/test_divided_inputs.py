"""Inputs of an ONNX graph's products are divided without a change of outputs, and int8 profits from it."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import transformers

from biosqueeze.backends.onnx_files import read_graph
from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.quantizers import QuantizationJob, divided_inputs, onnx_dynamic
from biosqueeze.quantizers.divided_inputs import choose_divisions, divide_inputs
from biosqueeze.quantizers.divisions import ByChannel, ByToken
from biosqueeze.quantizers.input_statistics import InputStatistics
from biosqueeze.quantizers.onnx_dynamic import _float_graph, _products
from tests import pico

OUTLIER = 5  # a channel


def outputs(graph, batch):
    session = ort.InferenceSession(graph, providers=["CPUExecutionProvider"])
    feed = {name: tensor.numpy() for name, tensor in batch.items()}
    types = np.zeros_like(feed["input_ids"])
    return session.run(None, {item.name: feed.get(item.name, types) for item in session.get_inputs()})[0]


def batch_of(checkpoint):
    return pico.padded_batch(transformers.AutoModel.from_pretrained(checkpoint))


def any_statistics(model):
    """Return statistics of the inputs of all products: what they say does not matter where the division is given."""
    names = {node.input[0]: matrix.dims[0] for node, matrix in _products(model)}
    ones = {name: np.ones((1, size), dtype=np.float32) for name, size in names.items()}
    return {name: InputStatistics(one, -one, one[0]) for name, one in ones.items()}


def by_channel(statistics, matrix, **_):
    random = np.random.default_rng(0)
    return ByChannel(random.uniform(1, 30, len(matrix)).astype(np.float32))


def by_token(statistics, matrix, **_):
    return ByToken(0.05)


@pytest.mark.parametrize("division", [by_channel, by_token])
@pytest.mark.parametrize(("family", "head"), pico.GRAPHS)
def test_divided_graph_has_the_same_outputs(family, head, division, exported, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(divided_inputs, "best_division", division)
    source = exported(family, head)
    model = _float_graph(source / "onnx" / "model.onnx")
    products = [node for node, _ in _products(model)]
    matrices = {tensor.name: onnx.numpy_helper.to_array(tensor) for _, tensor in _products(model)}
    names = {node.input[0] for node in products}
    divisions = choose_divisions(model, products, any_statistics(model))
    assert divisions.keys() == names
    divide_inputs(model, products, divisions)
    changed = [(onnx.numpy_helper.to_array(matrix) != matrices[matrix.name]).any() for _, matrix in _products(model)]
    assert set(changed) == {division is by_channel}
    assert {node.input[0] for node, _ in _products(model)} == {f"{name}.divided" for name in names}
    onnx.checker.check_model(model)
    onnx.save(model, tmp_path / "divided.onnx")
    batch = batch_of(source)
    expected = outputs(source / "onnx" / "model.onnx", batch)
    np.testing.assert_allclose(outputs(tmp_path / "divided.onnx", batch), expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("is_read_elsewhere", [True, False])
def test_a_matrix_that_other_nodes_read_stays(exported, is_read_elsewhere, monkeypatch) -> None:
    monkeypatch.setattr(divided_inputs, "best_division", by_channel)
    model = _float_graph(exported("bert", "token-classification") / "onnx" / "model.onnx")
    products = [node for node, matrix in _products(model) if matrix.dims[0] == pico.FFN]
    statistics = any_statistics(model)
    if is_read_elsewhere:
        model.graph.node.append(onnx.helper.make_node("Identity", [products[0].input[1]], ["copy"]))
    assert len(choose_divisions(model, products, statistics)) == (0 if is_read_elsewhere else len(products))


def with_outlier(source: Path, target: Path) -> Path:
    """Copy a float graph, one channel of the states that the feed-forward network reads 50 times as large."""
    model = read_graph(source)
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    (name,) = [name for name in tensors if name.endswith("layer.0.attention.output.LayerNorm.weight")]
    weight = onnx.numpy_helper.to_array(tensors[name]).copy()
    weight[OUTLIER] *= 50
    tensors[name].CopyFrom(onnx.numpy_helper.from_array(weight, name))
    onnx.save(model, target)
    return target


def test_int8_with_outliers_is_nearer_to_float(exported, tmp_path) -> None:
    checkpoint = open_checkpoint(str(exported("bert", "token-classification")))
    source = with_outlier(checkpoint.path / "onnx" / "model.onnx", tmp_path / "float.onnx")
    batches = [{name: tensor.numpy() for name, tensor in batch_of(checkpoint.path).items()}]
    errors, divided = [], []
    for number, seen in enumerate((batches, [])):
        job = QuantizationJob(checkpoint=checkpoint, source=source, target=tmp_path / f"{number}.onnx", batches=seen)
        notes = onnx_dynamic.quantize(job)
        divided.append(notes["inputs_divided_by_channel"] + notes["inputs_divided_by_token"])
        other = pico.padded_batch(transformers.AutoModel.from_pretrained(checkpoint.path), 8, 40, seed=3)
        errors.append(np.abs(outputs(job.target, other) - outputs(source, other)).mean())
    assert divided[0] >= 1
    assert divided[1] == 0
    assert errors[0] < 0.7 * errors[1]
