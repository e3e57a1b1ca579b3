"""Paths of a checkpoint's ONNX graphs, for several runtimes and without importing any."""

from pathlib import Path

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError

FLOAT, INT8 = "onnx/model.onnx", "onnx/model_quantized.onnx"


def graph_files(checkpoint: Checkpoint, file: str, backend: str, command: str) -> tuple[Path, ...]:
    """Return the ONNX file, and its external data if there are any.

    Args:
        checkpoint: that contains them.
        file: `FLOAT` or `INT8`.
        backend: that needs the file, for the message.
        command: that writes the file, for the message.

    Raises:
        SqueezeError: it is missing; the message names the command that writes it.
    """
    path = checkpoint.path / file
    if not path.is_file():
        raise SqueezeError(
            f"{checkpoint.name} has no {file}, which {backend} needs; first: biosqueeze {command} {checkpoint.name}"
        )
    data = path.with_name(path.name + ".data")
    return (path, data) if data.is_file() else (path,)
