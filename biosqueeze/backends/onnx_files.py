"""A checkpoint's ONNX graphs: their paths, and reading them, without importing a runtime."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biosqueeze.backends.onnx_limits import check_limits
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError, in_one_line
from biosqueeze.model_facts import head_of, output_width

if TYPE_CHECKING:
    import onnx

FLOAT, INT8 = "onnx/model.onnx", "onnx/model_quantized.onnx"
_INPUTS = {"input_ids", "attention_mask", "token_type_ids"}
_SPAN_OUTPUTS = ("start_logits", "end_logits")
_AXES = {"sequence-classification": 2, "token-classification": 3, "question-answering": 3, "mlm": 3}
"""Axes of the outputs of a head, see `Predictor.predict`; a discriminator has two, and counts as no head."""


class UnusableGraphError(SqueezeError):
    """A runtime cannot load or compute a graph."""


def graph_files(checkpoint: Checkpoint, file: str, backend: str, command: str) -> tuple[Path, ...]:
    """Return the ONNX file, and its external data if there are any.

    Args:
        checkpoint: that contains them.
        file: `FLOAT` or `INT8`.
        backend: that needs the file, for the message.
        command: that writes the file, for the message.

    Raises:
        SqueezeError: it is missing; the message names the command that writes it, or for the float graph that
            `quantize --slim` left out, the checkpoint that has it.
    """
    path = checkpoint.path / file
    if not path.is_file():
        if checkpoint.is_slim and file == FLOAT:
            raise checkpoint.missing_weights_error()
        first = f"first: biosqueeze {command} {checkpoint.quoted_name}"
        advice = "fetch or copy it again in full" if checkpoint.is_slim else first
        raise SqueezeError(f"{checkpoint.name} has no {file}, which {backend} needs; {advice}")
    return (path, *external_data(path))


def external_data(path: Path) -> tuple[Path, ...]:
    """Return the files in which the weights of a large ONNX file lie, by torch's name and by Optimum's.

    These are model.onnx.data, and model.onnx_data, model.onnx_data_1 and so on.
    """
    return tuple(sorted(path.parent.glob(f"{path.name}[._]data*")))


def remove_external_data(path: Path) -> None:
    """Remove those of a former graph, whose file is written anew."""
    for file in external_data(path):
        file.unlink()


def read_graph(path: Path) -> "onnx.ModelProto":
    """Read an ONNX file with its external data, which lie beside it.

    Raises:
        SqueezeError: it is damaged or cut short, may take any time or memory, or its external data are missing, too
            short, or elsewhere.
    """
    import onnx

    check_limits(path)
    try:
        model = onnx.load(path)
        for tensor in model.graph.initializer:
            onnx.numpy_helper.to_array(tensor)  # raises where the data do not fill the shape
    except Exception as error:  # protobuf's, the checker's and NumPy's errors have no base class of their own
        raise damaged_graph(path, error) from error
    if not model.graph.node or not model.opset_import:
        raise SqueezeError(f"{path} holds no ONNX graph; export again (biosqueeze export)")
    return model


def damaged_graph(path: Path, error: Exception) -> SqueezeError:
    """Return the error for an ONNX file that cannot be read or run."""
    cause = in_one_line(error)
    return SqueezeError(f"{path} is damaged, cut short, or lacks its external data ({cause}); export again")


def check_inputs(path: Path, inputs: Collection[str], *, outputs: int) -> None:
    """Check that a graph has the inputs of an encoder, and an output.

    Raises:
        SqueezeError: it has others, or none.
    """
    if not set(inputs) <= _INPUTS or "input_ids" not in inputs or not outputs:
        raise SqueezeError(
            f"{path} has the inputs {', '.join(inputs)[:200] or 'none'}, those of an encoder were expected "
            f"({', '.join(sorted(_INPUTS))}); {again(path)}"
        )


def main_outputs(names: Sequence[str]) -> tuple[str, ...]:
    """Return the outputs of a graph that are its logits: the first, or the two in which others export a span head."""
    return _SPAN_OUTPUTS if set(_SPAN_OUTPUTS) <= set(names) else tuple(names[:1])


def main_output(values: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return the values of `main_outputs` as one array: (batch, length) of starts and of ends -> (batch, length, 2)."""
    return values[0] if len(values) == 1 else np.stack(values, axis=-1)


def check_shape(path: Path, shapes: Sequence[Sequence[int | None]], checkpoint: Checkpoint) -> None:
    """Check that a graph has the outputs of the model of its checkpoint.

    Args:
        path: of the graph.
        shapes: of its `main_outputs`; None for an axis of any size, empty where the graph does not tell.
        checkpoint: that contains it.

    Raises:
        SqueezeError: it has others.
    """
    shape = shapes[0] if len(shapes) == 1 else (*shapes[0], len(shapes))  # see `main_output`
    if not shape:
        return
    head, width, expected = head_of(checkpoint.config), shape[-1], output_width(checkpoint.config)
    if width is not None and expected is not None and width != expected:
        found = f"has {width} outputs, and by its config.json {checkpoint.name} has {expected}"
    elif len(shape) != _AXES.get(head, len(shape)):
        found = f"has outputs of {len(shape)} axes, and by its config.json {checkpoint.name} has {_AXES[head]}"
    else:
        return
    raise SqueezeError(f"{path} {found} ({head}): it is the graph of another model; {again(path)}")


def again(path: Path) -> str:
    """Return what to do about a graph that cannot be used."""
    if path.name == Path(INT8).name:
        return "quantize again"
    return f"remove {path.name}, and `biosqueeze export` or `quantize` writes it again"
