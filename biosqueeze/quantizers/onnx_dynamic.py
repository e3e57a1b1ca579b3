"""Dynamic quantization by ONNX Runtime: int8 weights, activation ranges computed at run time. No calibration."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic

from biosqueeze.backends.onnx_export import silence_libraries
from biosqueeze.backends.onnx_files import read_graph
from biosqueeze.quantizers import FEW_OUTPUTS, QuantizationJob
from biosqueeze.quantizers.onnx_graph import fold_transposes, save, shrink_embeddings

NEEDS_CALIBRATION = False
USES = frozenset({"reduce_range"})


def quantize(job: QuantizationJob) -> dict[str, Any]:
    """Write `job.target`; the weights' scales are per output channel."""
    model = read_graph(job.source)
    fold_transposes(model)
    kept_float = _classifier_products(model)
    with silence_libraries(), tempfile.TemporaryDirectory(dir=job.target.parent) as directory:
        raw = Path(directory) / "raw.onnx"
        _drop_weight_shapes(model)
        quantize_dynamic(
            model,
            raw,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            reduce_range=job.reduce_range,
            weight_type=QuantType.QInt8,
            # ONNX Runtime replaces a Gemm by a MatMul with another name before it compares names with this list.
            nodes_to_exclude=[*kept_float, *(f"{name}_MatMul" for name in kept_float)],
        )
        model = onnx.load(raw)
    tables = shrink_embeddings(model) if job.embeddings else 0
    save(model, str(job.target))
    return {
        "weights": "int8 per channel",
        "activations": "uint8 dynamic",
        "reduce_range": job.reduce_range,
        "int8_embedding_tables": tables,
        "kept_float": kept_float,
    }


def _drop_weight_shapes(model: onnx.ModelProto) -> None:
    """Remove the shapes of weights from the graph's value infos.

    ONNX Runtime transposes the weights of a Gemm but not these shapes, and then fails because they differ.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    others = [value for value in model.graph.value_info if value.name not in weights]
    del model.graph.value_info[:]
    model.graph.value_info.extend(others)


def _classifier_products(model: onnx.ModelProto) -> list[str]:
    """Return the names of matrix products with few outputs: the classifier."""
    shapes = {tensor.name: tensor.dims for tensor in model.graph.initializer if len(tensor.dims) == 2}
    products = (n for n in model.graph.node if n.op_type in ("MatMul", "Gemm") and n.input[1] in shapes)
    return [node.name for node in products if _outputs(node, shapes[node.input[1]]) <= FEW_OUTPUTS]


def _outputs(product: onnx.NodeProto, shape: Sequence[int]) -> int:
    """Return the number of outputs of a product with a matrix."""
    transposed = any(attribute.name == "transB" and attribute.i for attribute in product.attribute)
    return shape[0 if transposed else 1]
