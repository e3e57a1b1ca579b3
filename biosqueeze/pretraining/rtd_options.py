"""The options of replaced-token detection. Torch-free."""

from dataclasses import dataclass
from typing import Annotated

from biosqueeze.options import Bounds, Excludes, Group, OnDisk, OnlyWith
from biosqueeze.training.options import TrainingOptions

_RTD = OnlyWith("objective", "rtd")


@dataclass(frozen=True, kw_only=True)
class ReplacedTokenOptions(TrainingOptions):
    """The generator of replaced-token detection, and the weight of the detection."""

    generator_share: Annotated[
        float,
        "Width of the generator, which replaces tokens, as a share of the model's: hidden size, heads and FFN.",
        Bounds(above=0, most=1),
        _RTD,
        Group.OBJECTIVE,
    ] = 0.25
    generator: Annotated[
        str | None,
        "Generator to go on with, such as OUT/generator of an earlier pretraining. Default: random weights.",
        OnDisk(may_be_name=True),
        Excludes("generator_share"),
        _RTD,
        Group.OBJECTIVE,
    ] = None
    rtd_weight: Annotated[
        float,
        "Weight of the detection loss; that of the generator's loss is 1.",
        Bounds(above=0),
        _RTD,
        Group.OBJECTIVE,
    ] = 50.0
