"""Resolve --precision to fp32 or bf16."""

from biosqueeze.models.device import has_bf16
from biosqueeze.training.options import TrainingOptions


def precision_of(options: TrainingOptions) -> str:
    """Return fp32 or bf16; `auto` is bf16 where the hardware computes it faster."""
    if options.precision != "auto":
        return options.precision
    return "bf16" if has_bf16() else "fp32"
