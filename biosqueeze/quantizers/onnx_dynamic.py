"""Dynamic quantization by ONNX Runtime: int8 weights, activation ranges computed at run time.

Text only shows what the inputs of the products are divided by.
"""

import tempfile
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.onnx_model import ONNXModel

from biosqueeze.backends.onnx_export import silence_libraries
from biosqueeze.backends.onnx_files import read_graph
from biosqueeze.quantizers import FEW_OUTPUTS, QuantizationJob
from biosqueeze.quantizers.divided_inputs import choose_divisions, divide_inputs
from biosqueeze.quantizers.divisions import count_divisions
from biosqueeze.quantizers.input_statistics import graph_statistics
from biosqueeze.quantizers.onnx_graph import fold_transposes, save, shrink_embeddings
from biosqueeze.quantizers.weight_scales import rounded, weight_scales

NEEDS_CALIBRATION = False
USES: frozenset[str] = frozenset()


def quantize(job: QuantizationJob) -> dict[str, Any]:
    """Write `job.target`; the weights' scales are per output channel."""
    model = _float_graph(job.source)
    kept_float = [node.name for node, matrix in _products(model) if _is_classifier(matrix)]
    channels = {node.input[0]: matrix.dims[0] for node, matrix in _products(model) if not _is_classifier(matrix)}
    products = _int8_products(model)
    divisions = choose_divisions(model, products, graph_statistics(job.source, channels, job.batches))
    divide_inputs(model, products, divisions)
    with silence_libraries(), tempfile.TemporaryDirectory(dir=job.target.parent) as directory:
        raw = Path(directory) / "raw.onnx"
        _drop_weight_shapes(model)
        quantize_dynamic(
            model,
            raw,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=kept_float,
        )
        model = onnx.load(raw)
    floats = _float_graph(job.source)  # read again: keeping it would add to the peak memory
    divide_inputs(floats, _int8_products(floats), divisions)
    _prevent_overflow(model, floats)
    tables = shrink_embeddings(model) if job.embeddings else 0
    save(model, job.target)
    return {
        "weights": "int8 per channel",
        "activations": "uint8 dynamic",
        **count_divisions(divisions.values()),
        "int8_embedding_tables": tables,
        "kept_float": kept_float,
    }


def _float_graph(source: Path) -> onnx.ModelProto:
    """Return the graph in which all products with weights are MatMul, of a matrix (inputs, outputs)."""
    model = read_graph(source)
    fold_transposes(model)
    ONNXModel(model).replace_gemm_with_matmul()
    return model


def _matrices(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """Return the weights of the matrix products by name."""
    read = {node.input[1] for node in model.graph.node if node.op_type == "MatMul"}
    return {t.name: t for t in model.graph.initializer if t.name in read and len(t.dims) == 2}


def _products(model: onnx.ModelProto) -> list[tuple[onnx.NodeProto, onnx.TensorProto]]:
    """Return the matrix products with weights, and the weights."""
    matrices = _matrices(model)
    nodes = (node for node in model.graph.node if node.op_type == "MatMul")
    return [(node, matrices[node.input[1]]) for node in nodes if node.input[1] in matrices]


def _is_classifier(matrix: onnx.TensorProto) -> bool:
    """Return whether a matrix has few outputs."""
    return int(matrix.dims[1]) <= FEW_OUTPUTS


def _int8_products(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Return the products that become int8."""
    return [node for node, matrix in _products(model) if not _is_classifier(matrix)]


def _drop_weight_shapes(model: onnx.ModelProto) -> None:
    """Remove the shapes of weights from the graph's value infos.

    ONNX Runtime transposes the weights of a Gemm but not these shapes, and then fails because they differ.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    others = [value for value in model.graph.value_info if value.name not in weights]
    del model.graph.value_info[:]
    model.graph.value_info.extend(others)


def _prevent_overflow(model: onnx.ModelProto, floats: onnx.ModelProto) -> None:
    """Replace int8 weights and their scales by those of `weight_scales`."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for name, tensor in _matrices(floats).items():
        if f"{name}_quantized" in tensors:
            matrix = onnx.numpy_helper.to_array(tensor)
            scales = weight_scales(matrix)
            for suffix, values in (("_quantized", rounded(matrix, scales)), ("_scale", scales)):
                tensors[name + suffix].CopyFrom(onnx.numpy_helper.from_array(values, name + suffix))
