"""Statistics of inputs are those of the states in stock transformers."""

import numpy as np
import onnx
import torch
import transformers

from biosqueeze.quantizers.input_statistics import graph_statistics, joined
from biosqueeze.quantizers.onnx_dynamic import _float_graph, _products
from tests import pico


def batches_of(model, seeds=(1, 2)):
    batches = [pico.padded_batch(model, seed=seed) for seed in seeds]
    return batches, [{name: tensor.numpy() for name, tensor in batch.items()} for batch in batches]


def test_statistics_are_those_of_stock_transformers(exported) -> None:
    source = exported("bert", "token-classification")
    model = transformers.AutoModelForTokenClassification.from_pretrained(source).eval()
    states = []
    layer = model.bert.encoder.layer[0].output.dense
    layer.register_forward_hook(lambda _m, given, _o: states.append(given[0].flatten(0, 1).double().numpy()))
    batches, arrays = batches_of(model)
    with torch.no_grad():
        for batch in batches:
            model(**batch)
    path = source / "onnx" / "model.onnx"
    (name,) = [node.input[0] for node, matrix in _products(_float_graph(path)) if matrix.dims[0] == pico.FFN]
    found = graph_statistics(path, {name: pico.FFN}, arrays)[name]
    near = {"rtol": 1e-4, "atol": 1e-6}
    np.testing.assert_allclose(found.highest, [rows.max(0) for rows in states], **near)
    np.testing.assert_allclose(found.lowest, [rows.min(0) for rows in states], **near)
    np.testing.assert_allclose(found.mean_square, (np.concatenate(states) ** 2).mean(0), **near)
    for number, rows in enumerate(states):
        np.testing.assert_allclose(found.token_highest[number], rows.max(1), **near)
        np.testing.assert_allclose(found.token_lowest[number], rows.min(1), **near)
    both = joined([found, found])
    assert both.highest.shape == (2 * len(states), pico.FFN)
    assert len(both.token_highest) == len(both.token_lowest) == 2 * len(states)
    np.testing.assert_array_equal(both.mean_square, found.mean_square)


def test_weights_in_another_file_are_measured(exported, tmp_path) -> None:
    source = exported("bert", "token-classification") / "onnx" / "model.onnx"
    target = tmp_path / "model.onnx"
    onnx.save(onnx.load(source), target, save_as_external_data=True, location="model.onnx.data")
    _, arrays = batches_of(transformers.AutoModel.from_pretrained(source.parents[1]))
    channels = {node.input[0]: matrix.dims[0] for node, matrix in _products(_float_graph(source))}
    expected, found = (graph_statistics(path, channels, arrays) for path in (source, target))
    assert all((expected[name].highest == found[name].highest).all() for name in channels)
    assert all(one.highest.max() > 0 for one in found.values())


def test_no_text_gives_no_statistics(tmp_path) -> None:
    assert graph_statistics(tmp_path / "missing.onnx", {"states": 4}, []) == {}


def test_without_products_there_are_no_statistics(exported) -> None:
    source = exported("bert", "token-classification")
    _, arrays = batches_of(transformers.AutoModel.from_pretrained(source))
    assert graph_statistics(source / "onnx" / "model.onnx", {}, arrays) == {}
