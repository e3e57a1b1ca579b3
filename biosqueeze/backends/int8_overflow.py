"""Whether sums of int8 products fit into 16 bits, which x86 processors without VNNI add them in."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biosqueeze import environment

if TYPE_CHECKING:
    import onnx

MOST = 128
"""The largest sum of two weights whose products with unsigned 8-bit activations fit: 255 x 128 < 2^15."""

_known: ContextVar[Collection[str] | None] = ContextVar("known", default=None)


@contextmanager
def known(overflowing: Collection[str]) -> Iterator[None]:
    """Let `overflows` look paths up, in a measuring process whose parent has read the graphs.

    Reading them takes time and memory, which the process would add to those of the runtime.

    Args:
        overflowing: resolved paths of the graphs that overflow.
    """
    token = _known.set(overflowing)
    try:
        yield
    finally:
        _known.reset(token)


def pair_sums(weight: NDArray[Any]) -> NDArray[Any]:
    """Return the largest sums that the products of two neighbouring inputs can have, for each output.

    The processors add the products of the inputs 0 and 1, 2 and 3, and so on. Activations are not negative, so the sum
    is largest where both weights of a pair with the same sign take part.

    Args:
        weight: (inputs, outputs).

    Returns:
        (outputs,), in units of the weights; divided by the largest activation.
    """
    pairs = np.concatenate([weight, np.zeros_like(weight[: len(weight) % 2])]).reshape(-1, 2, weight.shape[1])
    sums: NDArray[Any] = np.maximum(pairs.clip(0).sum(1), -pairs.clip(max=0).sum(1)).max(0)
    return sums


def overflows(path: Path) -> bool:
    """Return whether products of an int8 graph can overflow on this processor; False for a damaged file."""
    overflowing = _known.get()
    if overflowing is not None:
        return str(path.resolve()) in overflowing
    return environment.lacks_vnni() and _has_large_sums(path)


def _has_large_sums(path: Path) -> bool:
    import onnx

    try:
        model = onnx.load(path, load_external_data=False)
        if any(tensor.data_type == onnx.TensorProto.INT8 for tensor in model.graph.initializer):
            onnx.load_external_data_for_model(model, str(path.parent))
        return any(largest > MOST for largest in _largest_sums(model.graph))
    except Exception:  # protobuf's and NumPy's errors have no base class; the runtime explains the damage
        return False


def _largest_sums(graph: "onnx.GraphProto") -> Iterator[int]:
    """Yield the largest sum of each int8 weight, except embedding tables."""
    import onnx

    dequantized = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    products = [node for node in graph.node if node.op_type in ("MatMul", "MatMulInteger", "Gemm")]
    transposed = {dequantized.get(node.input[1], node.input[1]): _is_transposed(node) for node in products}
    tables = {node.input[0] for node in graph.node if node.op_type == "Gather"}
    for tensor in graph.initializer:
        if tensor.data_type != onnx.TensorProto.INT8 or tensor.name in tables:
            continue
        weight = onnx.numpy_helper.to_array(tensor).astype(np.int32)
        if tensor.name in transposed and weight.ndim == 2:
            yield pair_sums(weight.T if transposed[tensor.name] else weight).max(initial=0)
        else:  # of another tool: the order of its inputs is not known
            yield 2 * np.abs(weight).max(initial=0)


def _is_transposed(product: "onnx.NodeProto") -> bool:
    """Return whether its matrix is (outputs, inputs)."""
    return any(attribute.name == "transB" and attribute.i for attribute in product.attribute)
