"""The options of the costs that --dry-run prints. Torch-free."""

from dataclasses import dataclass
from typing import Annotated

from biosqueeze.options import Bounds, Group, Requires, Syntax
from biosqueeze.pretraining.gpus import PEAK_FLOPS, parse_gpus
from biosqueeze.training.options import TrainingOptions


@dataclass(frozen=True, kw_only=True)
class CostOptions(TrainingOptions):
    """The GPUs that --dry-run computes the time for."""

    gpu: Annotated[
        str | None,
        f"With --dry-run: also print the time on these GPUs. Known: {', '.join(PEAK_FLOPS)}.",
        Syntax("NAME[:COUNT]", parse_gpus, "h100:8"),
        Group.MACHINE,
    ] = None
    utilization: Annotated[
        float,
        "Share of the peak speed of --gpu that the training reaches.",
        Bounds(above=0, most=1),
        Requires("gpu"),
        Group.MACHINE,
    ] = 0.4
