"""Dynamic quantization by ONNX Runtime: int8 weights, activation ranges computed at run time. No calibration."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.onnx_model import ONNXModel

from biosqueeze.backends.onnx_export import silence_libraries
from biosqueeze.backends.onnx_files import read_graph
from biosqueeze.quantizers import FEW_OUTPUTS, QuantizationJob
from biosqueeze.quantizers.onnx_graph import fold_transposes, save, shrink_embeddings
from biosqueeze.quantizers.weight_scales import rounded, weight_scales

NEEDS_CALIBRATION = False
USES: frozenset[str] = frozenset()


def quantize(job: QuantizationJob) -> dict[str, Any]:
    """Write `job.target`; the weights' scales are per output channel."""
    model = read_graph(job.source)
    fold_transposes(model)
    ONNXModel(model).replace_gemm_with_matmul()
    matrices = _matrices(model)
    kept_float = _classifier_products(model, matrices)
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
    _prevent_overflow(model, matrices)
    tables = shrink_embeddings(model) if job.embeddings else 0
    save(model, str(job.target))
    return {
        "weights": "int8 per channel",
        "activations": "uint8 dynamic",
        "int8_embedding_tables": tables,
        "kept_float": kept_float,
    }


def _matrices(model: onnx.ModelProto) -> dict[str, NDArray[np.float32]]:
    """Return the weights (inputs, outputs) of the matrix products by name."""
    read = {node.input[1] for node in model.graph.node if node.op_type == "MatMul"}
    tensors = (tensor for tensor in model.graph.initializer if tensor.name in read and len(tensor.dims) == 2)
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in tensors}


def _classifier_products(model: onnx.ModelProto, matrices: Mapping[str, NDArray[np.float32]]) -> list[str]:
    """Return the names of matrix products with few outputs: the classifier."""
    products = (node for node in model.graph.node if node.op_type == "MatMul" and node.input[1] in matrices)
    return [node.name for node in products if matrices[node.input[1]].shape[1] <= FEW_OUTPUTS]


def _drop_weight_shapes(model: onnx.ModelProto) -> None:
    """Remove the shapes of weights from the graph's value infos.

    ONNX Runtime transposes the weights of a Gemm but not these shapes, and then fails because they differ.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    others = [value for value in model.graph.value_info if value.name not in weights]
    del model.graph.value_info[:]
    model.graph.value_info.extend(others)


def _prevent_overflow(model: onnx.ModelProto, matrices: Mapping[str, NDArray[np.float32]]) -> None:
    """Replace int8 weights and their scales by those of `weight_scales`."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for name, matrix in matrices.items():
        if f"{name}_quantized" in tensors:
            scales = weight_scales(matrix)
            for suffix, values in (("_quantized", rounded(matrix, scales)), ("_scale", scales)):
                tensors[name + suffix].CopyFrom(onnx.numpy_helper.from_array(values, name + suffix))
