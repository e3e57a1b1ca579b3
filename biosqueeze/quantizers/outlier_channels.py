"""Divide the outlier channels of activations, so that int8 keeps more of the others.

A few channels of a layer's input are up to ten times as large as the others (Sun et al. 2024, "Massive Activations"),
and a range that holds them leaves the others a tenth of its 256 steps. Here each outlier is divided by a factor, and
the weights that read it are multiplied by the same: Y = (X diag(s)^-1) (diag(s) W) (Xiao et al. 2023, "SmoothQuant",
equation 3). SmoothQuant changes all channels, by factors from the maxima of activations and weights; here those of
outliers alone, by factors from the maxima of activations.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from biosqueeze.backends import with_token_types
from biosqueeze.progress import track
from biosqueeze.quantizers.onnx_graph import IndexedGraph

if TYPE_CHECKING:
    from biosqueeze.quantizers.calibration import TokenBatch

Maxima = NDArray[np.float32]
"""The largest absolute value of each channel, (channels,)."""

_USUAL = 0.9
"""Share of the channels that are no outliers."""
_LEAST_RATIO = 3.0
"""Between the largest channel and the usual ones; below that a division would gain little."""


def outlier_factors(maxima: Maxima) -> Maxima | None:
    """Return what each channel is divided by, (channels,), at least 1; None where there are no outliers."""
    usual = np.quantile(maxima, _USUAL)
    if usual == 0 or maxima.max() < _LEAST_RATIO * usual:
        return None
    factors: Maxima = np.maximum(maxima / usual, 1).astype(np.float32)
    return factors


def channel_maxima(source: Path, channels: Mapping[str, int], batches: Sequence["TokenBatch"]) -> dict[str, Maxima]:
    """Run a float graph on text, and return the maxima of some of its tensors.

    Args:
        source: the graph.
        channels: the size of the last axis of each tensor, by the tensor's name.
        batches: of text.
    """
    session = _measuring_session(source, channels)
    inputs = [item.name for item in session.get_inputs()]
    largest = [np.zeros(size, dtype=np.float32) for size in channels.values()]
    with track("look for outlier channels", len(batches)) as progress:
        for batch in batches:
            filled = with_token_types(batch)
            found = session.run([_maximum(name) for name in channels], {name: filled[name] for name in inputs})
            largest = [np.maximum(*pair) for pair in zip(largest, found, strict=True)]
            progress.advance()
    return dict(zip(channels, largest, strict=True))


def _measuring_session(source: Path, channels: Mapping[str, int]) -> Any:
    """Return a session of the graph with the maximum of each channel of some tensors as further outputs."""
    model = onnx.load(source, load_external_data=False)
    graph = model.graph
    graph.initializer.append(numpy_helper.from_array(np.array([0]), "rows"))
    for name, size in channels.items():
        shape = numpy_helper.from_array(np.array([-1, size]), f"{name}.shape")
        graph.initializer.append(shape)
        graph.node.extend(
            [
                helper.make_node("Reshape", [name, shape.name], [f"{name}.rows"]),
                helper.make_node("Abs", [f"{name}.rows"], [f"{name}.sizes"]),
                helper.make_node("ReduceMax", [f"{name}.sizes", "rows"], [_maximum(name)], keepdims=0),
            ]
        )
        graph.output.append(helper.make_tensor_value_info(_maximum(name), onnx.TensorProto.FLOAT, [size]))
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(source.parent))
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _maximum(name: str) -> str:
    return f"{name}.maximum"


def divide_outliers(model: onnx.ModelProto, products: Sequence[onnx.NodeProto], maxima: Mapping[str, Maxima]) -> int:
    """Divide the outlier channels of the inputs of matrix products, and multiply the rows of their matrices.

    Args:
        model: its graph is changed, its outputs are not.
        products: nodes MatMul of this graph, whose second input is a matrix (inputs, outputs) of the graph. A matrix
            that other nodes read stays as it is.
        maxima: of the first input of each.

    Returns:
        number of inputs that are divided.
    """
    graph = IndexedGraph(model)
    known = {id(node) for node in products}
    divisions: dict[str, onnx.NodeProto] = {}
    for group in _groups(products):
        inputs, matrices = ({node.input[place]: None for node in group} for place in (0, 1))
        factors = outlier_factors(np.max([maxima[name] for name in inputs], axis=0))
        has_other_readers = any(id(node) not in known for name in matrices for node in graph.consumers[name])
        if factors is None or has_other_readers:
            continue
        for name in matrices:
            values = graph.array(name) * factors[:, None]
            graph.weights[name].CopyFrom(numpy_helper.from_array(values, name))
        inverse = graph.add(f"{next(iter(inputs))}.inverse", 1 / factors)
        divisions |= {name: helper.make_node("Mul", [name, inverse], [f"{name}.divided"]) for name in inputs}
    divided = {id(node) for node in products if node.input[0] in divisions}
    nodes = list[onnx.NodeProto]()
    left = dict(divisions)
    for node in model.graph.node:
        if id(node) in divided:
            name = node.input[0]
            nodes += [left.pop(name)] if name in left else []
            node.input[0] = f"{name}.divided"
        nodes.append(node)
    graph.replace_nodes(nodes)
    return len(divisions)


def _groups(products: Sequence[onnx.NodeProto]) -> list[list[onnx.NodeProto]]:
    """Return the products that need the same factors: those that share an input or a matrix, directly or by others."""
    groups = list[tuple[set[str], list[onnx.NodeProto]]]()
    for node in products:
        names = set(node.input)
        joined = [group for group in groups if group[0] & names]
        groups = [group for group in groups if not group[0] & names]
        groups.append((names.union(*(group[0] for group in joined)), [*chain(*(group[1] for group in joined)), node]))
    return [nodes for _, nodes in groups]
