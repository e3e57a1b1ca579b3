"""Bounds on the work that an ONNX graph may ask for, checked before a runtime prepares it."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from biosqueeze.errors import SqueezeError

if TYPE_CHECKING:
    import onnx

# The largest values of an encoder are transposed embeddings: 250,000 x 1,024.
_MOST_ELEMENTS = 1 << 28
# Larger tensors are weights and no shapes, and are not needed to infer the shapes of other values.
_SHAPE_BYTES = 1 << 16
_checked_by_parent = False
_ADVICE = "which no exported encoder has, so it is not run; export again (biosqueeze export)"


def skip_checks() -> None:
    """Let `check_limits` do nothing in this process: its parent has checked the graphs.

    Checking takes time and memory, which a measuring process would add to those of the runtime.
    """
    global _checked_by_parent
    _checked_by_parent = True


def check_limits(path: Path) -> None:
    """Check that a graph cannot take any amount of time or memory.

    A runtime unrolls functions and computes constants while it loads a graph. Encoders have neither loops nor branches,
    and compute no large value that does not depend on the input. What is no ONNX file is left to the runtime.

    Raises:
        SqueezeError: the graph has a loop, a branch or a function, or computes a giant constant.
    """
    if _checked_by_parent:
        return
    import onnx

    try:
        model = onnx.load(path, load_external_data=False)
    except Exception:  # protobuf's errors differ between its implementations
        return
    subgraph = next((node.op_type for node in model.graph.node if _has_subgraph(node)), None)
    if subgraph is not None or model.functions:
        what = f"the subgraph of a node {subgraph[:80]}" if subgraph else "a function"
        raise SqueezeError(f"{path} holds {what}, {_ADVICE}")
    name, elements = _largest_value(model)
    if elements > _MOST_ELEMENTS:
        raise SqueezeError(f"{path} computes {name[:80]!r} with {elements:,} elements, {_ADVICE}")


def _has_subgraph(node: "onnx.NodeProto") -> bool:
    return any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute)


def _largest_value(model: "onnx.ModelProto") -> tuple[str, int]:
    """Return the name and size of the largest computed value whose shape does not depend on the input."""
    import onnx

    for tensor in model.graph.initializer:
        if len(tensor.raw_data) > _SHAPE_BYTES:
            tensor.ClearField("raw_data")
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # of a damaged graph, which the runtime explains
        return "", 0
    shapes = {value.name: value.type.tensor_type.shape.dim for value in inferred.graph.value_info}
    sizes = {name: math.prod(dim.dim_value for dim in shape) for name, shape in shapes.items()}
    return max(sizes.items(), key=lambda item: item[1], default=("", 0))
