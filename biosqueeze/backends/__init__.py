"""Runtimes that turn token ids into logits, one file each.

A file has `PRECISIONS` (the first is the default), `files(checkpoint, precision)`, `available(checkpoint)` and
`load(checkpoint, precision, threads)`. A backend is asked for as RUNTIME or RUNTIME:PRECISION: `onnxruntime:int8`.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from biosqueeze import registry
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import UsageError

__all__ = [
    "Batch",
    "Predictor",
    "Runtime",
    "available_specs",
    "canonical_spec",
    "default_spec",
    "default_threads",
    "files_of",
    "format_spec",
    "open_predictor",
    "parse_spec",
    "with_token_types",
]

Batch = Mapping[str, NDArray[np.int64]]


class Predictor(Protocol):
    """A loaded model."""

    def predict(self, batch: Batch) -> NDArray[np.float32]:
        """Logits of one batch, or last hidden states of an encoder without a head.

        Args:
            batch: `input_ids` and `attention_mask`, int64 (batch, length). `token_type_ids` are zeros where the model
                takes them and the batch has none; what the model does not take is ignored.

        Returns:
            float32 (batch, length, labels); (batch, labels) for a classifier of whole sequences; (batch, length, 2) for
            a span head, starts first.
        """


class Runtime(Protocol):
    """What a file in this folder offers."""

    PRECISIONS: tuple[str, ...]

    def files(self, checkpoint: Checkpoint, precision: str) -> tuple[Path, ...]:
        """The files with the weights that this runtime loads; SqueezeError where they are missing."""

    def available(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        """Precisions whose files the checkpoint holds; only those worth a row of their own in a comparison."""

    def load(self, checkpoint: Checkpoint, precision: str, threads: int | None) -> Predictor:
        """Load it; `threads` None is the runtime's own choice. SqueezeError where files are missing or damaged."""


def _runtime(name: str) -> Runtime:
    return cast(Runtime, registry.load("backends", name))


def parse_spec(spec: str) -> tuple[str, str]:
    """Runtime and precision: "onnxruntime:int8" -> ("onnxruntime", "int8"); without one it is the runtime's first.

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
    """The shortest way to say it: ("torch", "fp32") -> "torch"."""
    return name if precision == _runtime(name).PRECISIONS[0] else f"{name}:{precision}"


def canonical_spec(spec: str) -> str:
    """The one spelling under which results are filed: "torch:fp32" -> "torch"."""
    return format_spec(*parse_spec(spec))


def available_specs(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Every backend that the checkpoint holds files for, torch first."""
    names = sorted(registry.names("backends"), key=lambda name: (name != "torch", name))
    return tuple(format_spec(name, p) for name in names for p in _runtime(name).available(checkpoint))


def default_spec(checkpoint: Checkpoint) -> str:
    """The backend that the checkpoint was last made for: quantize -> onnxruntime:int8, export -> onnxruntime."""
    stage = checkpoint.manifest.stage if checkpoint.manifest else ""
    return {"quantize": "onnxruntime:int8", "export": "onnxruntime"}.get(stage, "torch")


def open_predictor(checkpoint: Checkpoint, spec: str, threads: int | None = None) -> Predictor:
    """Load a checkpoint on the backend that `spec` names.

    Raises:
        UsageError: there is no such backend.
        SqueezeError: the checkpoint lacks the files, or they are damaged.
    """
    name, precision = parse_spec(spec)
    return _runtime(name).load(checkpoint, precision, threads)


def files_of(checkpoint: Checkpoint, spec: str) -> tuple[Path, ...]:
    """The files that a backend loads its weights from.

    Raises:
        UsageError: there is no such backend.
        SqueezeError: the checkpoint lacks the files.
    """
    name, precision = parse_spec(spec)
    return _runtime(name).files(checkpoint, precision)


def default_threads() -> int:
    """Physical cores that this process may use."""
    import psutil

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return max(1, min(usable, psutil.cpu_count(logical=False) or usable))


def with_token_types(batch: Batch) -> dict[str, Any]:
    """The batch with `token_type_ids` (zeros, where it has none)."""
    return {"token_type_ids": np.zeros_like(batch["input_ids"]), **batch}
