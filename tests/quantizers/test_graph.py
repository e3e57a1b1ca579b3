"""The passes that store weights as int8: same outputs, smaller files, computed by onnxruntime itself."""

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from biosqueeze.quantizers.onnx_graph import fold_transposes, fold_weights, prevent_overflow, shrink_embeddings
from biosqueeze.quantizers.weight_scales import rounded


def model_of(nodes, weights, inputs, output="y"):
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, kind, None) for name, kind in inputs.items()],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def run(model, **feed):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feed)[0]


def kinds(model):
    return [node.op_type for node in model.graph.node]


def quantized_linear(axis, *, clip, transpose, shape=(6, 4)):
    """x @ W as the exporter writes it: W -> QuantizeLinear (-> Clip) -> DequantizeLinear (-> Transpose) -> MatMul."""
    random = np.random.default_rng(0)
    weights = {
        "W": random.normal(size=shape).astype(np.float32),
        "scale": random.uniform(0.005, 0.05, shape[axis]).astype(np.float32),
        "zero": random.integers(-3, 3, shape[axis]).astype(np.int8),
        "low": np.array(-100, dtype=np.int8),
        "high": np.array(90, dtype=np.int8),
    }
    last = "q"
    nodes = [helper.make_node("QuantizeLinear", ["W", "scale", "zero"], ["q"], axis=axis)]
    if clip:
        nodes.append(helper.make_node("Clip", ["q", "low", "high"], ["c"]))
        last = "c"
    nodes.append(helper.make_node("DequantizeLinear", [last, "scale", "zero"], ["d"], axis=axis))
    if transpose:
        nodes.append(helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["x", "t" if transpose else "d"], ["y"]))
    return model_of(nodes, weights, {"x": TensorProto.FLOAT})


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_folding_changes_no_output(axis, transpose, clip) -> None:
    model = quantized_linear(axis, clip=clip, transpose=transpose)
    x = np.random.default_rng(1).normal(size=(3, 4 if transpose else 6)).astype(np.float32)
    expected = run(model, x=x)
    assert fold_weights(model) == 1
    assert kinds(model) == ["DequantizeLinear", "MatMul"]
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    assert types == {"W.int8": TensorProto.INT8, "scale": TensorProto.FLOAT, "zero": TensorProto.INT8}
    np.testing.assert_array_equal(run(model, x=x), expected)


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_scales_without_overflow(axis, transpose, clip) -> None:
    model = quantized_linear(axis, clip=clip, transpose=transpose)
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    weight = np.moveaxis(numpy_helper.to_array(tensors["W"]), axis, 1)
    zero = np.zeros(weight.shape[1], np.int8)
    tensors["zero"].CopyFrom(numpy_helper.from_array(zero, "zero"))
    tensors["high"].CopyFrom(numpy_helper.from_array(np.int8(127), "high"))
    tensors["low"].CopyFrom(numpy_helper.from_array(np.int8(-127), "low"))
    prevent_overflow(model)
    fold_weights(model)
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    folded = stored["W.int8"]
    folded = folded if folded.shape == weight.shape else folded.T  # 6 x 4, so the shape tells
    np.testing.assert_array_equal(folded, rounded(weight, stored["W.scales"]))


def test_casts_of_zero_points_are_computed() -> None:
    """The exporter leaves the Cast of the zero points of a large vocabulary, here written by hand."""
    model = quantized_linear(0, clip=True, transpose=True)
    x = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    expected = run(model, x=x)
    zero = next(tensor for tensor in model.graph.initializer if tensor.name == "zero")
    wide = numpy_helper.from_array(numpy_helper.to_array(zero).astype(np.int64), "wide")
    model.graph.initializer.remove(zero)
    model.graph.initializer.append(wide)
    model.graph.node.insert(0, helper.make_node("Cast", ["wide"], ["zero"], to=TensorProto.INT8))
    assert fold_weights(model) == 1
    assert kinds(model) == ["DequantizeLinear", "MatMul"]
    np.testing.assert_array_equal(run(model, x=x), expected)


def test_table_that_is_also_a_folded_decoder() -> None:
    """Both copies of the tied weight are int8, and neither takes the name of the other."""
    model = quantized_linear(0, clip=False, transpose=True, shape=(200, 16))
    model.graph.node.insert(0, helper.make_node("Gather", ["W", "ids"], ["x"], axis=0))
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("ids", TensorProto.INT64, None))
    ids = np.array([0, 7, 199])
    expected = run(model, ids=ids)
    assert (fold_weights(model), shrink_embeddings(model)) == (1, 1)
    assert {t.name for t in model.graph.initializer} == {"W.int8", "scale", "zero", "W.rows", "W.scale"}
    np.testing.assert_allclose(run(model, ids=ids), expected, atol=0.1)


@given(st.lists(st.floats(-300, 300, width=32), min_size=4, max_size=4), st.floats(0.25, 2, width=32))
@settings(max_examples=30, deadline=None)
def test_folding_rounds_and_saturates_as_onnxruntime_does(row, scale) -> None:
    weights = {
        "W": np.array([row, [0.5, 1.5, -0.5, -2.5]], dtype=np.float32),
        "scale": np.full(2, scale, dtype=np.float32),
        "zero": np.zeros(2, dtype=np.int8),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["W", "scale", "zero"], ["q"], axis=0),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"], axis=0),
        helper.make_node("Add", ["x", "d"], ["y"]),
    ]
    model = model_of(nodes, weights, {"x": TensorProto.FLOAT})
    expected = run(model, x=np.zeros(4, dtype=np.float32))
    fold_weights(model)
    np.testing.assert_array_equal(run(model, x=np.zeros(4, dtype=np.float32)), expected)


def test_shared_matrix_is_stored_transposed() -> None:
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("Transpose", ["W"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "t"], ["once"]),
        helper.make_node("MatMul", ["once", "t"], ["twice"]),
        helper.make_node("Transpose", ["twice"], ["y"], perm=[1, 0]),
    ]
    model = model_of(nodes, {"W": random.normal(size=(6, 6)).astype(np.float32)}, {"x": TensorProto.FLOAT})
    x = random.normal(size=(3, 6)).astype(np.float32)
    expected = run(model, x=x)
    fold_transposes(model)
    assert kinds(model) == ["MatMul", "MatMul", "Transpose"]
    assert [tensor.name for tensor in model.graph.initializer] == ["t"]
    np.testing.assert_array_equal(run(model, x=x), expected)


def test_activations_are_unchanged() -> None:
    weights = {"scale": np.array(0.1, dtype=np.float32), "zero": np.array(3, dtype=np.uint8)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    model = model_of(nodes, weights, {"x": TensorProto.FLOAT})
    assert fold_weights(model) == 0
    assert kinds(model) == ["QuantizeLinear", "DequantizeLinear"]


def test_weight_with_a_second_consumer_is_an_error() -> None:
    model = quantized_linear(0, clip=False, transpose=False)
    model.graph.node.append(helper.make_node("Cast", ["q"], ["other"], to=TensorProto.FLOAT))
    with pytest.raises(ValueError, match="W has other consumers"):
        fold_weights(model)


def lookup(table, nodes=()):
    gather = helper.make_node("Gather", ["table", "ids"], ["y"], axis=0)
    return model_of([gather, *nodes], {"table": table}, {"ids": TensorProto.INT64})


def test_rows_are_restored_up_to_rounding() -> None:
    random = np.random.default_rng(0)
    table = (random.normal(size=(200, 16)) * random.uniform(0.01, 10, (200, 1))).astype(np.float32)
    table[7] = 0
    model = lookup(table)
    assert shrink_embeddings(model) == 1
    ids = np.array([[0, 7, 199], [3, 3, 7]])
    actual = run(model, ids=ids)
    assert actual.shape == (2, 3, 16)
    allowed = np.abs(table[ids]).max(-1, keepdims=True) / 254 * 1.001
    assert (np.abs(actual - table[ids]) <= allowed).all()
    assert (actual[0, 1] == 0).all()
    assert np.abs(actual - table[ids]).max() > 0
    assert len(model.SerializeToString()) < table.nbytes / 2.5


def test_small_tables_stay() -> None:
    model = lookup(np.ones((2, 16), dtype=np.float32))
    assert shrink_embeddings(model) == 0
    assert kinds(model) == ["Gather"]


def test_table_that_is_also_a_decoder_stays_float() -> None:
    table = np.ones((200, 16), dtype=np.float32)
    transpose = helper.make_node("Transpose", ["table"], ["decoder"])
    model = lookup(table, nodes=[transpose])
    assert shrink_embeddings(model) == 0


def test_table_read_twice_is_stored_once() -> None:
    table = np.random.default_rng(0).normal(size=(200, 16)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["a"], axis=0),
        helper.make_node("Gather", ["table", "ids"], ["b"], axis=0),
        helper.make_node("Sub", ["a", "b"], ["y"]),
    ]
    model = model_of(nodes, {"table": table}, {"ids": TensorProto.INT64})
    assert shrink_embeddings(model) == 1
    assert sorted(tensor.name for tensor in model.graph.initializer) == ["table.rows", "table.scale"]
    assert (run(model, ids=np.array([5, 6])) == 0).all()
