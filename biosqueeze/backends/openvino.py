"""OpenVINO on the CPU (optional): the exported graph in float32 or bfloat16, or in int8 with fixed ranges."""

import importlib.util
import sys
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from biosqueeze.backends import Batch, with_token_types
from biosqueeze.backends.int8_overflow import overflows
from biosqueeze.backends.onnx_files import (
    FLOAT,
    INT8,
    again,
    check_inputs,
    check_shape,
    graph_files,
    main_output,
    main_outputs,
)
from biosqueeze.backends.onnx_limits import check_limits
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError, in_one_line, is_out_of_memory, require
from biosqueeze.system.cores import cores_by_quota

PRECISIONS = ("fp32", "bf16", "int8")
FILES = {"fp32": FLOAT, "bf16": FLOAT, "int8": INT8}
_COMMANDS = {"fp32": "export", "bf16": "export", "int8": "quantize --method inc-static"}

# Without a hint OpenVINO uses bfloat16 if the processor supports it; float32 operators of an int8 graph stay float32.
_HINTS = {"fp32": "f32", "bf16": "bf16", "int8": "f32"}
_PRODUCTS = ("FullyConnected", "MatMul")


class OpenVinoPredictor:
    """Predict with an ONNX file.

    Raises:
        SqueezeError: OpenVINO is not installed, cannot load the file, or would compute it in another precision; or it
            is no encoder's graph.
    """

    device = "cpu"

    def __init__(self, path: Path, precision: str = "fp32", threads: int | None = None) -> None:
        check_limits(path)
        if precision == "int8" and overflows(path):
            raise SqueezeError(
                f"OpenVINO's int8 products of {path} would overflow on this processor, which has no VNNI; quantize "
                "again (biosqueeze quantize --method inc-static), or use onnxruntime:int8"
            )
        self.path = path
        self._load = partial(_compiled, path, precision, threads)
        self.compiled: Any = self._load()
        check_precision(self.compiled, path, precision)
        self.inputs = tuple(value.any_name for value in self.compiled.inputs)
        self.outputs = main_outputs([value.any_name for value in self.compiled.outputs])
        check_inputs(path, self.inputs, outputs=len(self.outputs))
        self._request: Any = self.compiled.create_infer_request()

    def predict(self, batch: Batch) -> NDArray[np.float32]:
        """Compute logits, or last hidden states; see `Predictor`."""
        filled = with_token_types(batch)
        if self._request is None:
            self.compiled = self._load()
            self._request = self.compiled.create_infer_request()
        try:
            # Where memory runs out, `infer` returns the outputs of the call before without an error.
            self._request.start_async({name: filled[name] for name in self.inputs}, share_inputs=True)
            self._request.wait()
        except RuntimeError as error:
            # What failed keeps some of its shapes: a later call would fail, or compute nonsense.
            self.compiled = self._request = None
            if is_out_of_memory(error):
                raise
            cause = in_one_line(error)
            raise SqueezeError(f"OpenVINO cannot compute {self.path} ({cause}); {again(self.path)}") from error
        values = [self._request.get_tensor(name).data for name in self.outputs]
        return np.array(main_output(values), dtype=np.float32)


def _compiled(path: Path, precision: str, threads: int | None) -> Any:
    core = _openvino().Core()
    settings: dict[str, Any] = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": _HINTS[precision],
        # Two processes with one thread each would be pinned to the same core.
        "ENABLE_CPU_PINNING": False,
    }
    threads = threads or cores_by_quota()
    if threads:
        settings["INFERENCE_NUM_THREADS"] = threads
    try:
        return core.compile_model(core.read_model(path), "CPU", settings)
    except RuntimeError as error:
        cause = in_one_line(error)
        raise SqueezeError(
            f"OpenVINO cannot load {path} for {precision} ({cause}); "
            "export or quantize again, or use another precision or onnxruntime"
        ) from error


def _openvino() -> Any:
    """Import the package without its telemetry, which would report the import to Google Analytics."""
    cast("dict[str, Any]", sys.modules).setdefault("openvino_telemetry", None)
    return require("openvino", "openvino")


def check_precision(compiled: Any, path: Path, precision: str) -> None:
    """Check that a compiled model computes in the requested precision.

    Raises:
        SqueezeError: it does not, because of the processor or of the graph's quantization.
    """
    if precision == "bf16" and compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name() != "bf16":
        raise SqueezeError("OpenVINO does not support bfloat16 on this processor; use --backend openvino")
    if precision == "int8" and not _has_int8_products(compiled):
        raise SqueezeError(
            f"OpenVINO would compute {path} in float32: it has int8 products only for fixed activation ranges; "
            "quantize with --method inc-static, or use onnxruntime:int8"
        )


def _has_int8_products(compiled: Any) -> bool:
    facts = (node.get_rt_info() for node in compiled.get_runtime_model().get_ops())
    return any(f["layerType"].value in _PRODUCTS and f["runtimePrecision"].value in ("u8", "i8") for f in facts)


def files(checkpoint: Checkpoint, precision: str) -> tuple[Path, ...]:
    """Return the ONNX file, and its external data if there are any.

    Raises:
        SqueezeError: OpenVINO is not installed, or the file is missing; the message names the command.
    """
    check_installed()
    backend = f"openvino for {precision}"
    return graph_files(checkpoint, FILES[precision], backend, _COMMANDS[precision])


def available(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Return the precisions whose file exists, if OpenVINO is installed; bf16 has no file and is on request only."""
    if not _is_installed():
        return ()
    int8 = checkpoint.path / FILES["int8"]
    usable = ("fp32", "int8") if _has_fixed_ranges(checkpoint) and not overflows(int8) else ("fp32",)
    return tuple(precision for precision in usable if (checkpoint.path / FILES[precision]).is_file())


def check_installed() -> None:
    """Raise SqueezeError if the package is missing."""
    if not _is_installed():
        _openvino()


def _is_installed() -> bool:
    return importlib.util.find_spec("openvino") is not None


def _has_fixed_ranges(checkpoint: Checkpoint) -> bool:
    """Return whether OpenVINO computes the int8 graph in int8: the last `quantize`, which wrote it, tells."""
    methods = [entry.options.get("method") for entry in checkpoint.history if entry.stage == "quantize"]
    return methods[-1:] == ["inc-static"]


def load(checkpoint: Checkpoint, precision: str, threads: int | None) -> OpenVinoPredictor:
    """Load the ONNX file of that precision.

    Raises:
        SqueezeError: it is damaged, or the graph of another model.
    """
    predictor = OpenVinoPredictor(files(checkpoint, precision)[0], precision, threads)
    known = [predictor.compiled.output(name).partial_shape for name in predictor.outputs]
    shapes = [[size.get_length() if size.is_static else None for size in s] if s.rank.is_static else [] for s in known]
    check_shape(predictor.path, shapes, checkpoint)
    return predictor
