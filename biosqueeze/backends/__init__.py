"""Runtimes that turn token ids into logits, one file each.

A file has `PRECISIONS` (the first is the default), `files(checkpoint, precision)`, `available(checkpoint)` and
`load(checkpoint, precision, threads)`. A backend is written RUNTIME or RUNTIME:PRECISION: `onnxruntime:int8`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from biosqueeze import registry
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import UsageError
from biosqueeze.models.custom_heads.files import has_cosine
from biosqueeze.options import AUTO_DEVICE

Batch = Mapping[str, NDArray[np.int64]]


class Predictor(Protocol):
    """A loaded model."""

    @property
    def device(self) -> str:
        """Where it computes, such as cpu or cuda:0."""

    def predict(self, batch: Batch) -> NDArray[np.float32]:
        """Compute the logits of one batch, or the last hidden states of an encoder without a head.

        Args:
            batch: `input_ids` and `attention_mask`, int64 (batch, length). If the model has `token_type_ids` and the
                batch does not, they are zeros; other inputs that the model does not have are ignored.

        Returns:
            float32 (batch, length, labels); (batch, labels) of a sequence classifier; (batch, length, 2) of a span
            head, starts first.
        """


class Runtime(Protocol):
    """The interface of a file in this folder."""

    PRECISIONS: tuple[str, ...]

    def files(self, checkpoint: Checkpoint, precision: str) -> tuple[Path, ...]:
        """Return the files that this runtime loads; raise SqueezeError if they are missing."""

    def available(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        """Return the precisions whose files the checkpoint has, without those that `bench` measures on request only."""

    def load(self, checkpoint: Checkpoint, precision: str, threads: int | None) -> Predictor:
        """Load a model; threads None is the runtime's default. Raise SqueezeError if files are missing or damaged."""


def _runtime(name: str) -> Runtime:
    return cast(Runtime, registry.load("backends", name))


def parse_spec(spec: str) -> tuple[str, str]:
    """Return runtime and precision, by default its first: "onnxruntime:int8" -> ("onnxruntime", "int8").

    Raises:
        UsageError: there is no such runtime, or it has no such precision.
    """
    name, colon, precision = spec.partition(":")
    known = _runtime(name).PRECISIONS
    if not colon:
        return name, known[0]
    if precision not in known:
        raise UsageError(
            f"backend {spec!r}: {name} has no precision {precision!r}.{registry.closest(precision, known)} "
            f"It has: {', '.join(known)}"
        )
    return name, precision


def format_spec(name: str, precision: str) -> str:
    """Return the shortest spelling: ("torch", "fp32") -> "torch"."""
    return name if precision == _runtime(name).PRECISIONS[0] else f"{name}:{precision}"


def canonical_spec(spec: str) -> str:
    """Return the spelling that names the files of results: "torch:fp32" -> "torch"."""
    return format_spec(*parse_spec(spec))


def available_specs(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Return every backend that the checkpoint has files for, torch first."""
    names = sorted(registry.names("backends"), key=lambda name: (name != "torch", name))
    return tuple(format_spec(name, p) for name in names for p in _runtime(name).available(checkpoint))


def default_spec(checkpoint: Checkpoint) -> str:
    """Return the backend of the checkpoint's last stage: quantize -> onnxruntime:int8, export -> onnxruntime.

    A relabelled checkpoint has that of the stage before, whose graphs were copied.
    """
    stage = checkpoint.manifest.stage if checkpoint.manifest else ""
    if stage == "relabel" and (checkpoint.path / "onnx").is_dir():  # absent where outputs were removed
        stage = next((entry.stage for entry in reversed(checkpoint.history) if entry.stage != "relabel"), "")
    return {"quantize": "onnxruntime:int8", "export": "onnxruntime"}.get(stage, "torch")


def open_predictor(checkpoint: Checkpoint, spec: str, threads: int | None = None) -> Predictor:
    """Load a checkpoint on the backend that `spec` names.

    With a cosine head its outputs are scores of pairs of texts; where a batch has no pairs, hidden states.

    Raises:
        UsageError: there is no such backend.
        SqueezeError: the checkpoint lacks the files, or they are damaged.
    """
    name, precision = parse_spec(spec)
    predictor = _runtime(name).load(checkpoint, precision, threads)
    if not has_cosine(checkpoint):
        return predictor
    from biosqueeze.backends.text_pairs import TextPairPredictor

    return TextPairPredictor.of(predictor, checkpoint)


def use_device(spec: str, device: str) -> str:
    """Set the device on which a backend will run, and return its name.

    Args:
        spec: RUNTIME[:PRECISION].
        device: of --device.

    Raises:
        UsageError: the runtime runs on the CPU alone.
        SqueezeError: PyTorch has no such device.
    """
    name, _ = parse_spec(spec)
    if name != "torch":
        if device not in (AUTO_DEVICE, "cpu"):
            raise UsageError(f"--device {device} is for --backend torch, and {name} runs on the CPU; leave it out")
        return "cpu"
    from biosqueeze.models.device import own_device, select_device

    select_device(device)
    return str(own_device())


def files_of(checkpoint: Checkpoint, spec: str) -> tuple[Path, ...]:
    """Return the files that a backend loads.

    Raises:
        UsageError: there is no such backend.
        SqueezeError: the checkpoint lacks the files.
    """
    name, precision = parse_spec(spec)
    return _runtime(name).files(checkpoint, precision)


def check_installed(spec: str) -> None:
    """Check that a runtime is installed; `check_installed` of its file does, where it is optional.

    Raises:
        UsageError: there is no such backend.
        SqueezeError: its package is missing.
    """
    name, _ = parse_spec(spec)
    check = getattr(_runtime(name), "check_installed", None)
    if check is not None:
        check()


def check_runnable(checkpoint: Checkpoint, spec: str) -> None:
    """Check that a local checkpoint has the files of a backend, and that its runtime is installed.

    Raises:
        UsageError: there is no such backend.
        SqueezeError: a file or a package is missing.
    """
    name, precision = parse_spec(spec)
    if checkpoint.is_writable:
        _runtime(name).files(checkpoint, precision)


def default_threads() -> int:
    """Return the number of physical cores that this process may use."""
    import psutil

    from biosqueeze.system.cores import usable_cores

    return min(usable_cores(), psutil.cpu_count(logical=False) or usable_cores())


def with_token_types(batch: Batch) -> dict[str, Any]:
    """Return the batch with `token_type_ids`, zeros if it has none."""
    return {"token_type_ids": np.zeros_like(batch["input_ids"]), **batch}
