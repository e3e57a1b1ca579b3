"""Declare the options of a stage once; everything else derives from the declaration.

A stage's `Options` is a frozen dataclass whose fields are `Annotated[type, "help", markers...]`. The Click parameter,
the recipe key, the environment variable, the manifest entry and the keyword of the Python function derive from that
field. Its rules (bounds, choices, what it needs or excludes) are markers too: they are checked when the dataclass is
constructed, and shown in the help.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from biosqueeze.options.checks import check_options
from biosqueeze.options.fields import OptionField, flag_of, option_fields
from biosqueeze.options.markers import (
    Argument,
    Choices,
    Common,
    Data,
    Group,
    Hidden,
    OnDisk,
    Purpose,
    Short,
    Suggests,
    Syntax,
)
from biosqueeze.options.outcome import Block, Outcome, Plan, Summary
from biosqueeze.options.rules import Bounds, Excludes, OnlyWith, Requires, UsedBy, between_0_and_1, is_given
from biosqueeze.options.values import AUTO_DEVICE, amount, device_name, named_number, positive_numbers, whole_numbers

__all__ = [
    "AUTO_DEVICE",
    "Argument",
    "Block",
    "Bounds",
    "CheckpointArgument",
    "Choices",
    "Common",
    "Data",
    "DeviceOption",
    "Excludes",
    "Group",
    "Hidden",
    "InferenceOptions",
    "OnDisk",
    "OnlyWith",
    "OptionField",
    "Outcome",
    "Plan",
    "Purpose",
    "Requires",
    "Short",
    "StageOptions",
    "Suggests",
    "Summary",
    "Syntax",
    "UsedBy",
    "WritingOptions",
    "amount",
    "between_0_and_1",
    "device_name",
    "flag_of",
    "named_number",
    "option_fields",
    "positive_numbers",
    "resolved",
    "whole_numbers",
]

# NumPy takes seeds up to twice as high; several seeds or processes count up from the one that is given.
HIGHEST_SEED = 2**31 - 1


CheckpointArgument = Annotated[
    str,
    "Directory, Hub id (NAME, or NAME@REVISION), demo:minilm, or - for the path on standard input.",
    Argument(),
    OnDisk(may_be_name=True),
]


@dataclass(frozen=True, kw_only=True)
class StageOptions:
    """Options of a stage that reads a checkpoint and adds at most a result to it."""

    NEEDS_ONE_OF: ClassVar[tuple[str, ...]] = ()
    """Options of which at least one must be given."""
    SEVERAL_PROCESSES: ClassVar[bool] = False
    """Whether several processes, started by `accelerate launch` or torchrun, may run the stage together."""
    HAS_TABLE: ClassVar[bool] = False
    """Whether the outcome has rows, which --table prints."""
    READS_RESULTS: ClassVar[bool] = False
    """Whether the stage reads what others add to a checkpoint beside the model: results, curves, the manifest."""

    sources: Annotated[Mapping[str, str], "Where each value came from.", Hidden()] = field(
        default_factory=dict, compare=False
    )

    def __post_init__(self) -> None:
        """Check the options by the rules declared beside them.

        Raises:
            UsageError: an option breaks a rule.
        """
        check_options(self, self.NEEDS_ONE_OF)

    @property
    def written(self) -> frozenset[str]:
        """The names of the options that the user wrote, whatever their values."""
        return frozenset(name for name, source in self.sources.items() if source != "default")

    def is_given(self, name: str) -> bool:
        """Whether the user gave the option: its value differs from the default, or the default was written out."""
        return is_given(self, name)


@dataclass(frozen=True, kw_only=True)
class WritingOptions(StageOptions):
    """Options of a stage that writes a checkpoint."""

    out: Annotated[
        str | None,
        "Directory to write. Default: the name of the input and what was done, such as teacher-distilled.",
        Short("o"),
        OnDisk(is_output=True),
        Common(),
        Group.OUTPUT,
    ] = None
    force: Annotated[bool, "Replace an existing output.", Group.OUTPUT] = False
    seed: Annotated[
        int,
        "Seed of all random numbers in this stage.",
        Bounds(least=0, most=HIGHEST_SEED),
        Group.OUTPUT,
    ] = 0


DeviceOption = Annotated[
    str,
    "Device of PyTorch: auto (a GPU where there is one), cpu, cuda, cuda:1 or mps.",
    Syntax("DEVICE", device_name, "cuda:1"),
    Group.MACHINE,
]


@dataclass(frozen=True, kw_only=True)
class InferenceOptions(StageOptions):
    """Options of a stage that runs a fine-tuned checkpoint."""

    backend: Annotated[
        str | None,
        "Runtime and precision, such as torch:bf16 or onnxruntime:int8. Default: onnxruntime:int8 after quantize, "
        "onnxruntime after export, else torch.",
        Syntax("RUNTIME[:PRECISION]"),
        Group.MACHINE,
    ] = None
    batch_size: Annotated[int, "Sequences in a batch.", Bounds(least=1), Group.MACHINE] = 32
    max_length: Annotated[
        int | None,
        "Tokens in a sequence; longer inputs are split into windows (ner, pico, qa) or cut. Default: as in the "
        "fine-tuning.",
        Bounds(least=3),
        Group.MACHINE,
    ] = None
    threads: Annotated[
        int | None,
        "CPU threads of the backend. Default: the backend decides.",
        Bounds(least=1, most=1024),
        Group.MACHINE,
    ] = None
    device: DeviceOption = AUTO_DEVICE


def resolved(options: StageOptions) -> dict[str, Any]:
    """Return the options as plain values for the manifest: no hidden field, tuples as lists."""
    values = {f.name: getattr(options, f.name) for f in option_fields(type(options)) if f.marker(Hidden) is None}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}
