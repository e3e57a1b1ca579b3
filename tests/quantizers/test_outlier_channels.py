"""Outlier channels: found as the states of stock transformers show them, and divided without a change of outputs."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from biosqueeze.backends.onnx_files import read_graph
from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.quantizers import QuantizationJob, onnx_dynamic
from biosqueeze.quantizers.onnx_dynamic import _float_graph, _products
from biosqueeze.quantizers.outlier_channels import channel_maxima, divide_outliers, outlier_factors
from tests import pico

OUTLIER = 5  # a channel


def outputs(graph, batch):
    session = ort.InferenceSession(graph, providers=["CPUExecutionProvider"])
    feed = {name: tensor.numpy() for name, tensor in batch.items()}
    types = np.zeros_like(feed["input_ids"])
    return session.run(None, {item.name: feed.get(item.name, types) for item in session.get_inputs()})[0]


def batch_of(checkpoint):
    return pico.padded_batch(transformers.AutoModel.from_pretrained(checkpoint))


@given(st.lists(st.floats(0, 100, width=32), min_size=1, max_size=64))
def test_factors_bring_all_channels_near_the_usual_ones(sizes) -> None:
    maxima = np.array(sizes, dtype=np.float32)
    factors, usual = outlier_factors(maxima), np.quantile(maxima, 0.9)
    if factors is None:
        assert usual == 0 or maxima.max() < 3 * usual
    else:
        assert (factors[maxima <= usual] == 1).all()
        np.testing.assert_allclose((maxima / factors)[maxima > usual], usual, rtol=1e-5)


def test_maxima_are_those_of_stock_transformers(exported) -> None:
    source = exported("bert", "token-classification")
    model = transformers.AutoModelForTokenClassification.from_pretrained(source).eval()
    inputs = []
    model.bert.encoder.layer[0].output.dense.register_forward_hook(lambda _m, given, _o: inputs.append(given[0]))
    batches = [pico.padded_batch(model, seed=seed) for seed in (1, 2)]
    with torch.no_grad():
        for batch in batches:
            model(**batch)
    path = source / "onnx" / "model.onnx"
    (name,) = [node.input[0] for node, matrix in _products(_float_graph(path)) if matrix.dims[0] == pico.FFN]
    found = channel_maxima(path, {name: pico.FFN}, [{k: v.numpy() for k, v in batch.items()} for batch in batches])
    expected = torch.cat([states.flatten(0, 1) for states in inputs]).abs().amax(0)
    np.testing.assert_allclose(found[name], expected.numpy(), rtol=1e-4)


@pytest.mark.parametrize(("family", "head"), pico.GRAPHS)
def test_divided_graph_has_the_same_outputs(family, head, exported, tmp_path) -> None:
    source = exported(family, head)
    model = _float_graph(source / "onnx" / "model.onnx")
    random = np.random.default_rng(0)
    maxima = {}
    for node, matrix in _products(model):
        maxima[node.input[0]] = random.uniform(0.5, 1, matrix.dims[0]).astype(np.float32)
        maxima[node.input[0]][random.integers(matrix.dims[0])] = 30
    matrices = {tensor.name: onnx.numpy_helper.to_array(tensor) for _, tensor in _products(model)}
    divided = divide_outliers(model, [node for node, _ in _products(model)], maxima)
    assert divided == len(maxima)
    assert all((onnx.numpy_helper.to_array(matrix) != matrices[matrix.name]).any() for _, matrix in _products(model))
    onnx.checker.check_model(model)
    onnx.save(model, tmp_path / "divided.onnx")
    batch = batch_of(source)
    expected = outputs(source / "onnx" / "model.onnx", batch)
    np.testing.assert_allclose(outputs(tmp_path / "divided.onnx", batch), expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("is_read_elsewhere", [True, False])
def test_a_matrix_that_other_nodes_read_stays(exported, is_read_elsewhere) -> None:
    model = _float_graph(exported("bert", "token-classification") / "onnx" / "model.onnx")
    products = [node for node, matrix in _products(model) if matrix.dims[0] == pico.FFN]
    maxima = {products[0].input[0]: np.array([30] + [1] * (pico.FFN - 1), dtype=np.float32)}
    if is_read_elsewhere:
        model.graph.node.append(onnx.helper.make_node("Identity", [products[0].input[1]], ["copy"]))
    assert divide_outliers(model, products, maxima) == (0 if is_read_elsewhere else 1)


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
        divided.append(onnx_dynamic.quantize(job)["divided_inputs"])
        other = pico.padded_batch(transformers.AutoModel.from_pretrained(checkpoint.path), 8, 40, seed=3)
        errors.append(np.abs(outputs(job.target, other) - outputs(source, other)).mean())
    assert divided[0] >= 1
    assert divided[1] == 0
    assert errors[0] < 0.7 * errors[1]


def test_weights_in_another_file_are_measured(exported, tmp_path) -> None:
    source = exported("bert", "token-classification") / "onnx" / "model.onnx"
    target = tmp_path / "model.onnx"
    onnx.save(onnx.load(source), target, save_as_external_data=True, location="model.onnx.data")
    batches = [{name: tensor.numpy() for name, tensor in batch_of(source.parents[1]).items()}]
    channels = {node.input[0]: matrix.dims[0] for node, matrix in _products(_float_graph(source))}
    expected, found = (channel_maxima(path, channels, batches) for path in (source, target))
    assert all((expected[name] == found[name]).all() for name in channels)
    assert all(values.max() > 0 for values in found.values())
