"""Compare an int8 graph with PyTorch before it is written."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.files import megabytes
from biosqueeze.models.custom_heads.files import output_type_of_graph
from biosqueeze.models.loading.detection import config_with_family, detect_head
from biosqueeze.progress import note, warn

if TYPE_CHECKING:
    from biosqueeze.backends.parity import Parity
    from biosqueeze.quantizers.calibration import TokenBatch

_GOOD_AGREEMENT = 0.98


def check_agreement(
    checkpoint: Checkpoint, batches: Sequence["TokenBatch"], tolerance: float, remedies: str
) -> "Parity":
    """Compare a checkpoint's int8 graph with PyTorch.

    Args:
        checkpoint: with weights and onnx/model_quantized.onnx.
        batches: what both are run on.
        tolerance: least agreement: share of equal predictions, correlation of scores, or cosine without a head.
        remedies: options to try, for the message.

    Raises:
        SqueezeError: they agree less, or an output is infinite or NaN.
    """
    from biosqueeze.backends import open_predictor
    from biosqueeze.backends.parity import compare
    from biosqueeze.data.output_types import output_type_of_config

    reference, quantized = (open_predictor(checkpoint, spec) for spec in ("torch", "onnxruntime:int8"))
    parity = compare(reference, quantized, batches, output_type_of_config(checkpoint.config))
    if not isfinite(parity.max_difference):
        raise SqueezeError(
            f"the int8 graph of {checkpoint.name} is broken: outputs are infinite or not a number; nothing was "
            f"written; try {remedies}"
        )
    measure, agreement = _agreement(checkpoint, parity.as_dict())
    if not agreement >= tolerance:
        raise SqueezeError(
            f"the int8 graph of {checkpoint.name} is broken: its {measure} with PyTorch is {agreement:.3f}, under the "
            f"tolerance of {tolerance:g}; nothing was written; try {remedies}"
        )
    return parity


def graph_sizes(checkpoint: Checkpoint) -> dict[str, float]:
    """Return the size of the int8 graph, in MB and relative to the float32 graph."""
    from biosqueeze.backends.onnxruntime import files

    float32, int8 = (megabytes(files(checkpoint, precision)) for precision in ("fp32", "int8"))
    return {"megabytes": round(int8, 3), "size_ratio": round(int8 / float32, 4)}


def note_comparison(checkpoint: Checkpoint, metrics: Mapping[str, float], remedies: str) -> None:
    """Print the size of an int8 graph and its differences from PyTorch, and warn where they are large.

    Args:
        checkpoint: that was quantized.
        metrics: `Parity.as_dict` and `graph_sizes`.
        remedies: options to try, for the warning.
    """
    measure, agreement = _agreement(checkpoint, metrics)
    cosine = "" if measure == "cosine" else f"cosine {metrics['cosine']:.4f}, "
    graph = f"int8 graph of {checkpoint.name}"
    note(
        f"{graph}: {metrics['megabytes']:.1f} MB, {metrics['size_ratio']:.0%} of float32; against PyTorch on "
        f"{metrics['tokens']} outputs: largest difference {metrics['max_difference']:.3g}, mean "
        f"{metrics['mean_difference']:.2g}, {cosine}{measure} {agreement:.4f}"
    )
    if agreement < _GOOD_AGREEMENT:
        warn(
            f"the {measure} of the {graph} with PyTorch is {agreement:.4f} only (0.98 is usual): compare the "
            f"task's score of both with `biosqueeze evaluate`, or try {remedies}"
        )


def _agreement(checkpoint: Checkpoint, metrics: Mapping[str, float]) -> tuple[str, float]:
    """Return what an int8 graph and PyTorch are compared by, and its value: without a head, hidden states by cosine."""
    if detect_head(checkpoint, config_with_family(checkpoint)) == "base":
        return "cosine", metrics["cosine"]
    return output_type_of_graph(checkpoint).agreement_measure, metrics["agreement"]
