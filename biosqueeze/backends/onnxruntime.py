"""ONNX Runtime on the CPU: the exported graph in float32, or quantized to int8."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from biosqueeze.backends import Batch, with_token_types
from biosqueeze.backends.int8_overflow import overflows
from biosqueeze.backends.onnx_files import (
    FLOAT,
    INT8,
    UnusableGraphError,
    again,
    check_inputs,
    check_shape,
    graph_files,
    main_output,
    main_outputs,
)
from biosqueeze.backends.onnx_limits import check_limits
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import in_one_line, is_out_of_memory
from biosqueeze.system.cores import cores_by_quota

PRECISIONS = ("fp32", "int8")
FILES = {"fp32": FLOAT, "int8": INT8}
_COMMANDS = {"fp32": "export", "int8": "quantize"}

# On the CPU the fused kernel for residual + LayerNorm is several times slower than the two it replaces
# (onnxruntime 1.31, 8 x 128 x 384: 1.9 ms against 0.35 ms), a sixth of the time of a small int8 model.
_SLOWER_FUSED = ["SkipLayerNormFusion"]


class OnnxPredictor:
    """Predict with an ONNX file.

    Raises:
        SqueezeError: ONNX Runtime cannot load the file, or it may take any time or memory.
    """

    device = "cpu"

    def __init__(self, path: Path, threads: int | None = None) -> None:
        check_limits(path)
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.inter_op_num_threads = 1
        options.intra_op_num_threads = threads or cores_by_quota() or 0  # 0: ONNX Runtime's default
        options.log_severity_level = 4  # an error is raised too
        # Threads that wait for the next call must not use the processor meanwhile.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        overflow = overflows(path)
        if overflow:
            # Products with unsigned weights are exact, at 0.8 of the speed. ONNX Runtime fails where weights with
            # fixed activation ranges share a zero point.
            options.add_session_config_entry("session.x64quantprecision", "1")
        try:
            self.session: Any = ort.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"], disabled_optimizers=_SLOWER_FUSED
            )
        except Exception as error:  # onnxruntime's exceptions have no public base class
            cause = in_one_line(error)
            reason = "its int8 products overflow on this processor, which has no VNNI: " if overflow else ""
            message = f"ONNX Runtime cannot load {path} ({reason}{cause}); {again(path)}"
            raise UnusableGraphError(message) from error
        self.path = path
        self.inputs = tuple(item.name for item in self.session.get_inputs())
        self.outputs = main_outputs([item.name for item in self.session.get_outputs()])
        check_inputs(path, self.inputs, outputs=len(self.outputs))

    def predict(self, batch: Batch) -> NDArray[np.float32]:
        """Compute logits, or last hidden states; see `Predictor`."""
        filled = with_token_types(batch)
        try:
            values = self.session.run(self.outputs, {name: filled[name] for name in self.inputs})
        except Exception as error:  # onnxruntime's exceptions have no public base class
            if is_out_of_memory(error):
                raise
            cause = in_one_line(error)
            message = f"ONNX Runtime cannot compute {self.path} ({cause}); {again(self.path)}"
            raise UnusableGraphError(message) from error
        return main_output(values)


def files(checkpoint: Checkpoint, precision: str) -> tuple[Path, ...]:
    """Return the ONNX file, and its external data if there are any.

    Raises:
        SqueezeError: it is missing; the message names the command that writes it.
    """
    backend = f"onnxruntime for {precision}"
    return graph_files(checkpoint, FILES[precision], backend, _COMMANDS[precision])


def available(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Return the precisions whose file exists."""
    return tuple(precision for precision, file in FILES.items() if (checkpoint.path / file).is_file())


def load(checkpoint: Checkpoint, precision: str, threads: int | None) -> OnnxPredictor:
    """Load the ONNX file of that precision.

    Raises:
        SqueezeError: it is damaged, or the graph of another model.
    """
    predictor = OnnxPredictor(files(checkpoint, precision)[0], threads)
    known = {item.name: item.shape or [] for item in predictor.session.get_outputs()}
    shapes = [[size if isinstance(size, int) else None for size in known[name]] for name in predictor.outputs]
    check_shape(predictor.path, shapes, checkpoint)
    return predictor
