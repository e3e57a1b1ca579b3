"""Compare an int8 graph with PyTorch before it is written."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.files import megabytes
from biosqueeze.model_facts import head_of
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

    output_type = output_type_of_config(checkpoint.config)
    reference, quantized = (open_predictor(checkpoint, spec) for spec in ("torch", "onnxruntime:int8"))
    parity = compare(reference, quantized, batches, output_type)
    headless = head_of(checkpoint.config) == "base"
    agreement = parity.cosine if headless else parity.agreement
    if not isfinite(parity.max_difference):
        raise SqueezeError(
            f"the int8 graph of {checkpoint.name} is broken: outputs are infinite or not a number; nothing was "
            f"written; try {remedies}"
        )
    if not agreement >= tolerance:
        measure = "a cosine of" if headless else output_type.agreement_measure
        raise SqueezeError(
            f"the int8 graph of {checkpoint.name} is broken: {measure} {agreement:.3f} with PyTorch's, under the "
            f"tolerance of {tolerance:g}; nothing was written; try {remedies}"
        )
    return parity


def graph_sizes(checkpoint: Checkpoint) -> dict[str, float]:
    """Return the size of the int8 graph, in MB and relative to the float32 graph."""
    from biosqueeze.backends.onnxruntime import files

    float32, int8 = (megabytes(files(checkpoint, precision)) for precision in ("fp32", "int8"))
    return {"megabytes": round(int8, 3), "size_ratio": round(int8 / float32, 4)}


def note_comparison(name: str, metrics: Mapping[str, float], headless: bool, remedies: str) -> None:
    """Print the size of an int8 graph and its differences from PyTorch, and warn where they are large.

    Args:
        name: of the checkpoint.
        metrics: `Parity.as_dict` and `graph_sizes`.
        headless: whether the model has no head, so that its hidden states are what agrees.
        remedies: options to try, for the warning.
    """
    note(
        f"int8 graph of {name}: {metrics['megabytes']:.1f} MB, {metrics['size_ratio']:.0%} of float32; against "
        f"PyTorch on {metrics['tokens']} outputs: largest difference {metrics['max_difference']:.3g}, mean "
        f"{metrics['mean_difference']:.2g}, cosine {metrics['cosine']:.4f}, agreement {metrics['agreement']:.2%}"
    )
    agreement = metrics["cosine" if headless else "agreement"]
    if agreement < _GOOD_AGREEMENT:
        warn(
            f"the int8 graph of {name} agrees with PyTorch on {agreement:.2%} only (98% is usual): compare the task's "
            f"score of both with `biosqueeze evaluate`, or try {remedies}"
        )
