"""Divide the inputs of an ONNX graph's matrix products as `divisions` says, without a change of outputs."""

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
import onnx
from onnx import helper, numpy_helper

from biosqueeze.quantizers.divisions import ByChannel, ByToken, Division, best_division
from biosqueeze.quantizers.input_statistics import InputStatistics, joined
from biosqueeze.quantizers.onnx_graph import IndexedGraph


def choose_divisions(
    model: onnx.ModelProto, products: Sequence[onnx.NodeProto], statistics: Mapping[str, InputStatistics]
) -> dict[str, Division]:
    """Return the divisions of inputs of matrix products with which rounding changes the outputs less.

    Args:
        model: a graph.
        products: nodes MatMul of this graph, whose second input is a matrix (inputs, outputs) of the graph. A matrix
            that other nodes read must stay as it is, and so its input is not divided.
        statistics: of the first input of each; without any, nothing is divided.
    """
    graph = IndexedGraph(model)
    known = {id(node) for node in products}
    divisions = dict[str, Division]()
    for group in _groups(products) if statistics else []:
        inputs, matrices = (list(dict.fromkeys(node.input[place] for node in group)) for place in (0, 1))
        if any(id(node) not in known for name in matrices for node in graph.consumers[name]):
            continue
        matrix = np.concatenate([graph.array(name) for name in matrices], axis=1)
        division = best_division(joined([statistics[name] for name in inputs]), matrix, fixed=False)
        if division is not None:
            divisions |= dict.fromkeys(inputs, division)
    return divisions


def divide_inputs(
    model: onnx.ModelProto, products: Sequence[onnx.NodeProto], divisions: Mapping[str, Division]
) -> None:
    """Divide the inputs of the matrix products of a graph, whose outputs stay the same."""
    graph = IndexedGraph(model)
    factors = {
        node.input[1]: division.factors
        for node in products
        if isinstance(division := divisions.get(node.input[0]), ByChannel)
    }
    for name, of_matrix in factors.items():
        values = graph.array(name) * of_matrix[:, None]
        graph.weights[name].CopyFrom(numpy_helper.from_array(values, name))
    graph.replace_nodes(_divided_nodes(graph, {id(node) for node in products}, divisions))


def _divided_nodes(graph: IndexedGraph, products: set[int], divisions: Mapping[str, Division]) -> list[onnx.NodeProto]:
    """Return the nodes of a graph, with those that divide inputs before the first product that reads each."""
    nodes = list[onnx.NodeProto]()
    done = set[str]()
    for node in graph.graph.node:
        name = node.input[0] if node.input else ""
        division = divisions.get(name) if id(node) in products else None
        if division is None:
            nodes.append(node)
            continue
        if name not in done:
            nodes += _division_nodes(graph, name, division)
            done.add(name)
        node.input[0] = f"{name}.divided"
        nodes.append(node)
        if isinstance(division, ByToken):
            output = node.output[0]
            node.output[0] = f"{output}.divided"
            nodes.append(helper.make_node("Mul", [node.output[0], f"{name}.sizes"], [output]))
    return nodes


def _division_nodes(graph: IndexedGraph, name: str, division: Division) -> list[onnx.NodeProto]:
    """Return the nodes that compute NAME.divided, and by token NAME.sizes."""
    if isinstance(division, ByChannel):
        inverse = graph.add(f"{name}.inverse", 1 / division.factors)
        return [helper.make_node("Mul", [name, inverse], [f"{name}.divided"])]
    least = graph.add(f"{name}.least", np.array([division.least], dtype=np.float32))
    return [
        graph.reduction("ReduceMax", name, f"{name}.highest", -1, keep=True),
        helper.make_node("Max", [f"{name}.highest", least], [f"{name}.sizes"]),
        helper.make_node("Div", [name, f"{name}.sizes"], [f"{name}.divided"]),
    ]


def _groups(products: Sequence[onnx.NodeProto]) -> list[list[onnx.NodeProto]]:
    """Return the products that need the same factors: those that share an input or a matrix, directly or by others."""
    groups = list[tuple[set[str], list[onnx.NodeProto]]]()
    for node in products:
        names = set(node.input)
        touched = [group for group in groups if group[0] & names]
        groups = [group for group in groups if not group[0] & names]
        groups.append((names.union(*(group[0] for group in touched)), [*chain(*(group[1] for group in touched)), node]))
    return [nodes for _, nodes in groups]
