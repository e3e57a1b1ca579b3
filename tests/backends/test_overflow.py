"""int8 products are exact where a processor without VNNI would add two of them in 16 bits, or are refused."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx import TensorProto, helper, numpy_helper

from biosqueeze import environment
from biosqueeze.backends import int8_overflow, openvino
from biosqueeze.backends.int8_overflow import MOST, overflows, pair_sums
from biosqueeze.backends.onnxruntime import OnnxPredictor
from biosqueeze.errors import SqueezeError
from biosqueeze.quantizers.weight_scales import rounded, weight_scales

INNER, OUTER = 64, 8
MATRICES = st.tuples(st.integers(1, 7), st.integers(1, 3)).flatmap(
    lambda shape: arrays(np.float32, shape, elements=st.floats(-8, 8, width=32))
)


@pytest.fixture(autouse=True)
def without_optional_runtimes() -> None:
    """Show what all other tests hide."""


@pytest.fixture(params=["dynamic", "static", "gemm", "transposed"])
def kind(request):
    return request.param


@pytest.fixture
def graph(tmp_path):
    """`graph(kind, weight)` multiplies ids of 0 to 255 by the matrix `weight`, or one of that value."""

    def write(kind, weight=127):
        weights = {
            "W": np.broadcast_to(weight, (INNER, OUTER)).astype(np.int8),
            "scale": np.float32(1),
            "zero": np.uint8(0),
            "W.scale": np.ones(OUTER, np.float32),
            "W.zero": np.zeros(OUTER, np.int8),
        }
        if kind == "transposed":
            weights["W"] = weights["W"].T
        nodes = [helper.make_node("Cast", ["input_ids"], ["x"], to=TensorProto.FLOAT)]
        if kind == "dynamic":
            nodes += [
                helper.make_node("DynamicQuantizeLinear", ["x"], ["x.q", "x.scale", "x.zero"]),
                helper.make_node("MatMulInteger", ["x.q", "W", "x.zero", "W.zero"], ["sums"]),
                helper.make_node("Cast", ["sums"], ["floats"], to=TensorProto.FLOAT),
                helper.make_node("Mul", ["floats", "x.scale"], ["y"]),
            ]
        else:
            transposed = kind == "transposed"
            product = helper.make_node("MatMul", ["x.d", "W.d"], ["y"])
            if kind != "static":
                product = helper.make_node("Gemm", ["x.d", "W.d"], ["y"], transB=int(transposed))
            nodes += [
                helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["x.q"]),
                helper.make_node("DequantizeLinear", ["x.q", "scale", "zero"], ["x.d"]),
                helper.make_node("DequantizeLinear", ["W", "W.scale", "W.zero"], ["W.d"], axis=int(not transposed)),
                product,
            ]
        ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["n", INNER])
        result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", OUTER])
        used = {name for node in nodes for name in node.input}
        tensors = [numpy_helper.from_array(np.asarray(v), name) for name, v in weights.items() if name in used]
        body = helper.make_graph(nodes, "sums", [ids], [result], tensors)
        path = tmp_path / f"{kind}.onnx"
        onnx.save(helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
        return path

    return write


def large_ids(rows=4):
    ids = np.full((rows, INNER), 255)
    ids[:, 0] = 0  # so that a dynamic range starts at zero
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("weight", [127, -128, 64, -64])
def test_onnxruntime_is_exact(graph, kind, weight, rows) -> None:
    output = OnnxPredictor(graph(kind, weight)).predict(large_ids(rows))
    np.testing.assert_array_equal(output, np.full((rows, OUTER), 255.0 * weight * (INNER - 1)))


@pytest.mark.parametrize(
    ("weight", "lacks", "expected"), [(127, True, True), (64, True, False), (-64, True, False), (127, False, False)]
)
def test_what_overflows(graph, kind, monkeypatch, weight, lacks, expected) -> None:
    monkeypatch.setattr(environment, "lacks_vnni", lambda: lacks)
    assert overflows(graph(kind, weight)) is expected


def test_known_graphs_are_not_read(graph, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(environment, "lacks_vnni", lambda: True)
    path, other = graph("static", 64), graph("gemm", 127)
    monkeypatch.chdir(tmp_path)
    with int8_overflow.known([str(path.resolve())]):
        assert overflows(Path(path.name))
        assert not overflows(other)
    assert not overflows(path)
    assert overflows(other)


@pytest.mark.parametrize("damage", ["cut", "dims"])
def test_damage_is_left_to_the_runtime(graph, kind, monkeypatch, damage) -> None:
    monkeypatch.setattr(environment, "lacks_vnni", lambda: True)
    path = graph(kind)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:200])
    else:
        model = onnx.load(path)
        (tensor,) = (tensor for tensor in model.graph.initializer if tensor.name == "W")
        tensor.dims[0] += 1
        path.write_bytes(model.SerializeToString())
    with pytest.raises(SqueezeError, match="ONNX Runtime cannot load"):
        OnnxPredictor(path)


def test_pairs_of_a_known_order_may_have_a_large_weight(graph, kind, monkeypatch) -> None:
    monkeypatch.setattr(environment, "lacks_vnni", lambda: True)
    path = graph(kind, 64)
    model = onnx.load(path)
    (tensor,) = (tensor for tensor in model.graph.initializer if tensor.name == "W")
    values = numpy_helper.to_array(tensor).copy()
    inputs_first = values.T if kind == "transposed" else values
    inputs_first[2:4] = [[127], [1]]
    tensor.CopyFrom(numpy_helper.from_array(values, "W"))
    onnx.save(model, path)
    assert not overflows(path)
    output = OnnxPredictor(path).predict(large_ids())
    np.testing.assert_array_equal(output, np.full((4, OUTER), 255.0 * (64 * (INNER - 3) + 128)))


def test_weights_of_unknown_products_need_seven_bits(graph, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(environment, "lacks_vnni", lambda: True)
    model = onnx.load(graph("static", 65))
    product = model.graph.node[-1]
    product.op_type, product.domain = "Custom", "elsewhere"
    onnx.save(model, tmp_path / "unknown.onnx")
    assert overflows(tmp_path / "unknown.onnx")


def test_openvino_refuses_what_would_overflow(graph, monkeypatch) -> None:
    monkeypatch.setattr(environment, "lacks_vnni", lambda: True)
    with pytest.raises(SqueezeError, match=r"would overflow.* no VNNI.*--method inc-static"):
        openvino.OpenVinoPredictor(graph("static"), "int8")


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_rounded_weights_are_computed_exactly(graph, runtime, rows) -> None:
    pytest.importorskip(runtime)
    random = np.random.default_rng(0)
    weight = random.normal(size=(INNER, OUTER)).astype(np.float32)
    values = rounded(weight, weight_scales(weight))
    values[:4] = [[1], [127], [127], [1]]  # large neighbours that are no pair
    path = graph("static", values)
    ids = random.choice([0, 255], size=(rows, INNER), p=[0.3, 0.7])
    predictor = OnnxPredictor(path) if runtime == "onnxruntime" else openvino.OpenVinoPredictor(path, "int8")
    output = predictor.predict({"input_ids": ids, "attention_mask": np.ones_like(ids)})
    np.testing.assert_array_equal(output, ids @ values.astype(np.float64))


@given(MATRICES)
def test_sums_of_pairs(weight) -> None:
    """Against the definition: the best choice of activations 0 and 1 for each pair."""
    expected = [
        max(
            abs(first * column[i] + second * (column[i + 1] if i + 1 < len(column) else 0))
            for i in range(0, len(column), 2)
            for first in (0, 1)
            for second in (0, 1)
        )
        for column in weight.T
    ]
    np.testing.assert_array_equal(pair_sums(weight), np.array(expected, np.float32))


@given(MATRICES)
def test_rounded_weights_never_overflow(weight) -> None:
    scales = weight_scales(weight)
    values = rounded(weight, scales)
    assert np.abs(values.astype(int)).max() <= 127
    assert pair_sums(values.astype(int)).max() <= MOST
    np.testing.assert_allclose(values * scales, weight, atol=scales.max() * 0.501)


@pytest.mark.parametrize(
    ("machine", "flags", "expected"),
    [
        ("x86_64", ["avx2"], True),
        ("x86_64", ["avx2", "avx_vnni"], False),
        ("x86_64", ["avx512f", "avx512_vnni"], False),
        ("aarch64", [], False),
    ],
)
def test_processors_without_vnni(monkeypatch, machine, flags, expected) -> None:
    monkeypatch.setattr(environment.platform, "machine", lambda: machine)
    monkeypatch.setattr(environment, "cpu_flags", lambda: tuple(flags))
    assert environment.lacks_vnni() is expected
