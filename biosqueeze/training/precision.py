"""Resolve --precision to fp32 or bf16."""

import torch

from biosqueeze.models.device import own_device
from biosqueeze.training.options import TrainingOptions


def has_bf16() -> bool:
    """Return whether the GPU, or else the CPU, has units for bf16 matrix products."""
    if own_device().type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def precision_of(options: TrainingOptions) -> str:
    """Return fp32 or bf16; `auto` is bf16 where the hardware has units for it."""
    if options.precision != "auto":
        return options.precision
    return "bf16" if has_bf16() else "fp32"
