"""Resolve --precision to fp32 or bf16, and for frozen teachers to int8."""

from biosqueeze.models.device import has_bf16
from biosqueeze.models.int8_products import has_int8_products
from biosqueeze.system import processes
from biosqueeze.training.options import TrainingOptions


def precision_of(options: TrainingOptions) -> str:
    """Return fp32 or bf16; `auto` is bf16 where the hardware computes it faster."""
    if options.precision != "auto":
        return options.precision
    return "bf16" if has_bf16() else "fp32"


def teacher_precision_of(options: TrainingOptions) -> str:
    """Return the precision of teachers that run in each step: that of the training, or int8.

    `auto` is int8 where the training is in fp32 and int8 is faster. A sharded teacher has the training's.
    """
    precision = precision_of(options)
    may_be_int8 = options.precision == "auto" and precision == "fp32" and not processes.sharding()
    return "int8" if may_be_int8 and has_int8_products() else precision
