"""A checkpoint's ONNX graphs: their paths, and reading them, without importing a runtime."""

from pathlib import Path
from typing import TYPE_CHECKING

from biosqueeze.backends.onnx_limits import check_limits
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError

if TYPE_CHECKING:
    import onnx

FLOAT, INT8 = "onnx/model.onnx", "onnx/model_quantized.onnx"


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
        first = f"first: biosqueeze {command} {checkpoint.name}"
        advice = "fetch or copy it again in full" if checkpoint.is_slim else first
        raise SqueezeError(f"{checkpoint.name} has no {file}, which {backend} needs; {advice}")
    data = external_data(path)
    return (path, data) if data.is_file() else (path,)


def external_data(path: Path) -> Path:
    """Return the file in which the weights of an ONNX file of more than 2 GB lie."""
    return path.with_name(f"{path.name}.data")


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
    cause = " ".join(str(error).split())
    return SqueezeError(f"{path} is damaged, cut short, or lacks its external data ({cause}); export again")
