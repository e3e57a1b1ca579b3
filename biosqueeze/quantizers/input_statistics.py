"""What text shows of the inputs of matrix products: what their int8 ranges must hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import helper

from biosqueeze.backends import with_token_types
from biosqueeze.progress import track
from biosqueeze.quantizers.onnx_graph import IndexedGraph

if TYPE_CHECKING:
    from biosqueeze.quantizers.calibration import TokenBatch

Array = NDArray[np.float32]

_TOKENS, _CHANNELS = 0, 1
_REDUCTIONS = {
    "highest": ("ReduceMax", _TOKENS),
    "lowest": ("ReduceMin", _TOKENS),
    "squares": ("ReduceSumSquare", _TOKENS),
    "token_highest": ("ReduceMax", _CHANNELS),
    "token_lowest": ("ReduceMin", _CHANNELS),
}
"""How each statistic is computed, and over which axis."""


@dataclass(frozen=True)
class InputStatistics:
    """Of one input, with padding, which has a part in the ranges too."""

    highest: Array
    """Of each channel in each batch, (batches, channels)."""
    lowest: Array
    """(batches, channels)."""
    mean_square: Array
    """(channels,)."""
    token_highest: Sequence[Array] = ()
    """Of each token, a (tokens,) for each batch; empty where nothing reads it."""
    token_lowest: Sequence[Array] = ()


def joined(several: Sequence[InputStatistics]) -> InputStatistics:
    """Return the statistics of inputs that are treated alike, as of one input with the batches of all."""
    return InputStatistics(
        np.concatenate([one.highest for one in several]),
        np.concatenate([one.lowest for one in several]),
        np.mean([one.mean_square for one in several], axis=0),
        [values for one in several for values in one.token_highest],
        [values for one in several for values in one.token_lowest],
    )


def graph_statistics(
    source: Path, channels: Mapping[str, int], batches: Sequence["TokenBatch"]
) -> dict[str, InputStatistics]:
    """Run a float graph on text, and return the statistics of some of its tensors.

    Args:
        source: the graph.
        channels: the size of the last axis of each tensor, by the tensor's name.
        batches: of text; with none, the statistics are of no tensor.
    """
    if not batches or not channels:  # a session that is given no names of outputs computes all of them
        return {}
    session = _measuring_session(source, channels)
    inputs = [item.name for item in session.get_inputs()]
    outputs = [f"{name}.{kind}" for name in channels for kind in _REDUCTIONS]
    found = []
    with track("measure the inputs of the layers", len(batches)) as progress:
        for batch in batches:
            filled = with_token_types(batch)
            values = session.run(outputs, {name: filled[name] for name in inputs})
            found.append(dict(zip(outputs, values, strict=True)))
            progress.advance()
    return {name: _collected(name, found) for name in channels}


def _collected(name: str, found: Sequence[Mapping[str, Array]]) -> InputStatistics:
    highest, lowest, squares, *of_tokens = ([values[f"{name}.{kind}"] for values in found] for kind in _REDUCTIONS)
    tokens = sum(len(values) for values in of_tokens[0])
    return InputStatistics(np.stack(highest), np.stack(lowest), np.sum(squares, axis=0) / tokens, *of_tokens)


def _measuring_session(source: Path, channels: Mapping[str, int]) -> Any:
    """Return a session of the graph with the statistics of some tensors, of one batch, as further outputs."""
    model = onnx.load(source, load_external_data=False)
    graph = IndexedGraph(model)
    for name, size in channels.items():
        shape = graph.add(f"{name}.shape", np.array([-1, size]))
        model.graph.node.append(helper.make_node("Reshape", [name, shape], [f"{name}.rows"]))
        for kind, (operation, axis) in _REDUCTIONS.items():
            output = f"{name}.{kind}"
            model.graph.node.append(graph.reduction(operation, f"{name}.rows", output, axis, keep=False))
            model.graph.output.append(helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, [None]))
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(source.parent))
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
