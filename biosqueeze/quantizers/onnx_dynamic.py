"""ONNX Runtime's dynamic quantization: int8 weights, activations measured as they come. Needs no calibration."""

import tempfile
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic

from biosqueeze.backends._export import quiet
from biosqueeze.quantizers import FEW_OUTPUTS, Job
from biosqueeze.quantizers._graph import save, shrink_embeddings

NEEDS_CALIBRATION = False


def quantize(job: Job) -> dict[str, Any]:
    """Write `job.target`; the weights' scales are per output channel."""
    exclude = _last_products(onnx.load(job.source))
    with quiet(), tempfile.TemporaryDirectory(dir=job.target.parent) as directory:
        raw = Path(directory) / "raw.onnx"
        quantize_dynamic(
            job.source,
            raw,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            reduce_range=job.reduce_range,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=exclude,
        )
        model = onnx.load(raw)
    tables = shrink_embeddings(model) if job.embeddings else 0
    save(model, str(job.target))
    return {
        "weights": "int8 per channel",
        "activations": "uint8 dynamic",
        "reduce_range": job.reduce_range,
        "int8_embedding_tables": tables,
        "kept_float": exclude,
    }


def _last_products(model: onnx.ModelProto) -> list[str]:
    """Names of the matrix products with few outputs: the classifier."""
    narrow = {t.name for t in model.graph.initializer if len(t.dims) == 2 and t.dims[1] <= FEW_OUTPUTS}
    return [n.name for n in model.graph.node if n.op_type in ("MatMul", "Gemm") and narrow & set(n.input[1:2])]
