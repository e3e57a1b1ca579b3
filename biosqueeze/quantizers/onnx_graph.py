"""Transform ONNX graphs so that weights are stored as int8."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from biosqueeze.backends.onnx_files import remove_external_data
from biosqueeze.quantizers.weight_scales import weight_scales

Array = NDArray[Any]

# Smaller tables (token types) would save less than three more nodes cost.
_MINIMUM_ROWS = 64
_AXES_AS_INPUT = 18
"""The first opset in which the axes of a reduction are an input; other programs still write older ones."""


_FULL = ("FLOAT", "DOUBLE", "INT32", "INT64", "BOOL")


def lower_precision(path: Path) -> str:
    """Return the type of the first matrix of a graph in less than 32 bits, such as int8; "" without one."""
    graph = onnx.load(path, load_external_data=False).graph
    names = (onnx.TensorProto.DataType.Name(t.data_type) for t in graph.initializer if len(t.dims) > 1)
    return next((name.lower() for name in names if name not in _FULL), "")


class IndexedGraph:
    """An ONNX graph with an index of its weights by name, and of its consumers by tensor."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph = model.graph
        self._opset = next(imported.version for imported in model.opset_import if imported.domain in ("", "ai.onnx"))
        self.weights = {tensor.name: tensor for tensor in self.graph.initializer}
        self.consumers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in self.graph.node:
            for name in node.input:
                self.consumers[name].append(node)

    def array(self, name: str) -> Array:
        """Return the values of a weight."""
        return numpy_helper.to_array(self.weights[name])

    def add(self, name: str, values: Array) -> str:
        """Add a weight; return its name."""
        tensor = numpy_helper.from_array(np.ascontiguousarray(values), name)
        self.graph.initializer.append(tensor)
        self.weights[name] = tensor
        return name

    def reduction(self, operation: str, values: str, output: str, axis: int, *, keep: bool) -> onnx.NodeProto:
        """Return a node that reduces a tensor along one axis, with `keep` to the size 1."""
        if self._opset < _AXES_AS_INPUT:
            return helper.make_node(operation, [values], [output], axes=[axis], keepdims=int(keep))
        axes = self.add(f"{output}.axis", np.array([axis]))
        return helper.make_node(operation, [values, axes], [output], keepdims=int(keep))

    def only_consumer(self, name: str, *kinds: str) -> onnx.NodeProto | None:
        """Return the node that reads a tensor, if there is exactly one and it is of one of these kinds."""
        nodes = self.consumers[name]
        return nodes[0] if len(nodes) == 1 and nodes[0].op_type in kinds else None

    def replace_nodes(self, nodes: Iterable[onnx.NodeProto]) -> None:
        """Replace the nodes, and remove unused weights and the shapes of removed tensors."""
        new_nodes = list(nodes)
        del self.graph.node[:]
        self.graph.node.extend(new_nodes)
        used = {name for node in new_nodes for name in node.input}
        weights = [tensor for tensor in self.graph.initializer if tensor.name in used]
        del self.graph.initializer[:]
        self.graph.initializer.extend(weights)
        del self.graph.value_info[:]


def fold_transposes(model: onnx.ModelProto) -> None:
    """Store the matrices that the graph transposes as their transposes.

    The exporter does so only for those that one node reads: not for those that layers share (ALBERT), nor for an
    embedding table that is the decoder's matrix too.
    """
    graph = IndexedGraph(model)
    transposes = [n for n in graph.graph.node if n.op_type == "Transpose" and _is_matrix(graph.weights.get(n.input[0]))]
    if not transposes:
        return
    for node in transposes:
        graph.add(node.output[0], graph.array(node.input[0]).T)
    folded = {id(node) for node in transposes}
    graph.replace_nodes(node for node in graph.graph.node if id(node) not in folded)


def _is_matrix(tensor: onnx.TensorProto | None) -> TypeGuard[onnx.TensorProto]:
    return tensor is not None and tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) == 2


def prevent_overflow(model: onnx.ModelProto) -> None:
    """Give the matrices that QuantizeLinear reads the scales of `weight_scales`; their zero points must be zero."""
    graph = IndexedGraph(model)
    for quantize in graph.graph.node:
        if quantize.op_type == "QuantizeLinear" and _is_matrix(graph.weights.get(quantize.input[0])):
            outputs = _axis(quantize)
            scales = weight_scales(np.moveaxis(graph.array(quantize.input[0]), outputs, 1))
            _, dequantize = _clip_and_dequantize(graph, quantize)
            quantize.input[1] = dequantize.input[1] = graph.add(f"{quantize.input[0]}.scales", scales)


def fold_weights(model: onnx.ModelProto) -> int:
    """Store weights as the int8 values that their QuantizeLinear computes at every start.

    weight -> QuantizeLinear (-> Clip) -> DequantizeLinear (-> Transpose) becomes int8 weight -> DequantizeLinear, with
    the weight transposed.

    Returns:
        number of folded weights.
    """
    graph = IndexedGraph(model)
    folded = _fold_casts(graph)
    quantizers = [n for n in graph.graph.node if n.op_type == "QuantizeLinear" and n.input[0] in graph.weights]
    for quantize in quantizers:
        folded |= _fold(graph, quantize)
    graph.replace_nodes(node for node in graph.graph.node if id(node) not in folded)
    return len(quantizers)


def _fold_casts(graph: IndexedGraph) -> set[int]:
    """Compute the Casts of weights; return the ids of those nodes.

    The exporter computes small ones only, and leaves those of the zero points of a large vocabulary.
    """
    casts = [n for n in graph.graph.node if n.op_type == "Cast" and n.input[0] in graph.weights]
    for cast in casts:
        to = next(attribute.i for attribute in cast.attribute if attribute.name == "to")
        graph.add(cast.output[0], graph.array(cast.input[0]).astype(helper.tensor_dtype_to_np_dtype(to)))
    return {id(cast) for cast in casts}


def _fold(graph: IndexedGraph, quantize: onnx.NodeProto) -> set[int]:
    """Fold one weight; return the ids of the nodes that it replaces."""
    name, axis = quantize.input[0], _axis(quantize)
    clip, dequantize = _clip_and_dequantize(graph, quantize)
    values = _quantized(graph, quantize, axis)
    replaced = {id(quantize)}
    if clip is not None:
        low, high = (graph.array(bound) for bound in clip.input[1:3])
        values = np.clip(values, low, high).astype(values.dtype)
        replaced.add(id(clip))
    transpose = graph.only_consumer(dequantize.output[0], "Transpose")
    if transpose is not None and values.ndim == 2:
        values = values.T
        axis = 1 - axis
        replaced.add(id(transpose))
        dequantize.output[0] = transpose.output[0]
    dequantize.input[0] = graph.add(f"{name}.int8", values)
    _set_axis(dequantize, axis)
    return replaced


def _clip_and_dequantize(graph: IndexedGraph, quantize: onnx.NodeProto) -> tuple[onnx.NodeProto | None, onnx.NodeProto]:
    """Return the nodes behind the QuantizeLinear of a weight."""
    clip = graph.only_consumer(quantize.output[0], "Clip")
    dequantize = graph.only_consumer((clip or quantize).output[0], "DequantizeLinear")
    if dequantize is None:
        raise ValueError(f"the quantized weight {quantize.input[0]} has other consumers than one DequantizeLinear")
    return clip, dequantize


def _quantized(graph: IndexedGraph, quantize: onnx.NodeProto, axis: int) -> Array:
    """Compute QuantizeLinear as ONNX defines it: round half to even, add the zero point, saturate."""
    weight, scale, zero = (graph.array(name) for name in quantize.input[:3])
    along = [1] * weight.ndim
    if scale.ndim:
        along[axis] = -1
    limits = np.iinfo(zero.dtype)
    shifted = np.rint(weight / scale.reshape(along)) + zero.reshape(along).astype(np.float32)
    result: Array = np.clip(shifted, limits.min, limits.max).astype(zero.dtype)
    return result


def _axis(node: onnx.NodeProto) -> int:
    return next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 1)


def _set_axis(node: onnx.NodeProto, axis: int) -> None:
    kept = [attribute for attribute in node.attribute if attribute.name != "axis"]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute("axis", axis)])


def shrink_embeddings(model: onnx.ModelProto) -> int:
    """Store embedding tables as int8 with one scale per row; only the rows that a batch needs are converted back.

    Values are rounded to 1/127 of the largest of their row, so they change by at most 1/254 of it.

    Returns:
        number of converted tables.
    """
    graph = IndexedGraph(model)
    tables = {n.input[0] for n in graph.graph.node if n.op_type == "Gather" and _is_table(graph, n)}
    nodes: list[onnx.NodeProto] = []
    for node in graph.graph.node:
        is_lookup = node.op_type == "Gather" and node.input[0] in tables
        nodes.extend(_lookup(graph, node) if is_lookup else [node])
    graph.replace_nodes(nodes)
    return len(tables)


def _is_table(graph: IndexedGraph, gather: onnx.NodeProto) -> bool:
    tensor = graph.weights.get(gather.input[0])
    if not _is_matrix(tensor) or tensor.dims[0] < _MINIMUM_ROWS:
        return False
    axis = next((attribute.i for attribute in gather.attribute if attribute.name == "axis"), 0)
    # A table that is also the decoder's matrix must stay float32, and an int8 copy would make the file larger.
    return axis == 0 and all(node.op_type == "Gather" for node in graph.consumers[gather.input[0]])


def _lookup(graph: IndexedGraph, gather: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return the nodes that replace one Gather: gather int8 rows and their scales, and multiply."""
    name, ids, output = gather.input[0], gather.input[1], gather.output[0]
    rows, row_scales = f"{name}.rows", f"{name}.scale"  # NAME.int8 may be the decoder's copy of the same weight
    if rows not in graph.weights:
        table = graph.array(name).astype(np.float32)
        scales = np.abs(table).max(axis=1, keepdims=True) / 127  # (rows, 1)
        scales = np.where(scales == 0, np.float32(1), scales).astype(np.float32)
        graph.add(rows, np.rint(table / scales).astype(np.int8))
        graph.add(row_scales, scales)
    return [
        helper.make_node("Gather", [rows, ids], [f"{output}.int8"], axis=0),
        helper.make_node("Cast", [f"{output}.int8"], [f"{output}.float"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Gather", [row_scales, ids], [f"{output}.scale"], axis=0),
        helper.make_node("Mul", [f"{output}.float", f"{output}.scale"], [output]),
    ]


def save(model: onnx.ModelProto, path: Path) -> None:
    """Check a graph and write it to one file, which int8 weights fit into."""
    onnx.checker.check_model(model)
    remove_external_data(path)
    onnx.save(model, path)
