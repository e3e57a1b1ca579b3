"""The options that every training stage has. Torch-free."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from biosqueeze.errors import UsageError
from biosqueeze.options import Writing
from biosqueeze.progress import note


def fitting_length(asked: int, positions: int) -> int:
    """The length of sequences: what was asked for, or what the model has positions for, with a note."""
    if asked > positions:
        note(f"sequences are cut into windows of {positions} tokens and not {asked}: the model has no more positions")
    return min(asked, positions)


_RANGES: dict[str, tuple[float, float]] = {
    "epochs": (1e-9, math.inf),
    "steps": (1, math.inf),
    "batch_size": (1, math.inf),
    "accumulate": (1, math.inf),
    "lr": (0, math.inf),
    "warmup": (0, 1),
    "weight_decay": (0, math.inf),
    "clip": (1e-9, math.inf),
    "max_length": (3, math.inf),
    "save_every": (1, math.inf),
    "workers": (0, math.inf),
}


@dataclass(frozen=True, kw_only=True)
class Training(Writing):
    """How long, how fast and how precisely to train."""

    epochs: Annotated[float, "Passes over the training data; --steps takes precedence."] = 3.0
    steps: Annotated[int | None, "Optimiser steps, whatever the size of the data."] = None
    batch_size: Annotated[int, "Sequences in a batch."] = 16
    accumulate: Annotated[int, "Batches whose gradients make one optimiser step."] = 1
    lr: Annotated[float, "Peak learning rate; it rises from 0 and falls back to 0 in straight lines."] = 1e-4
    warmup: Annotated[float, "Share of the steps in which the learning rate rises."] = 0.1
    weight_decay: Annotated[float, "AdamW's weight decay (not on biases and layer norms)."] = 0.01
    clip: Annotated[float, "Largest norm of the gradient; what is longer is scaled down to it."] = 1.0
    precision: Annotated[
        Literal["auto", "fp32", "bf16"],
        "bf16 is autocast; auto takes it where the GPU or the CPU has units for it.",
    ] = "auto"
    max_length: Annotated[int, "Tokens in a sequence; longer text is cut into windows, nothing is dropped."] = 128
    save_every: Annotated[int, "Steps between two saved training states, for --resume."] = 500
    resume: Annotated[bool, "Go on from the last saved state of an interrupted run."] = False
    workers: Annotated[int, "Processes that prepare batches; 0 does it in the main process."] = 0

    def __post_init__(self) -> None:
        """Refuse what no training can be done with.

        Raises:
            UsageError: a number is out of its range.
        """
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                least = "above 0" if 0 < low < 1 else f"at least {low:g}"
                bounds = least if math.isinf(high) else f"between {low:g} and {high:g}"
                raise UsageError(f"--{name.replace('_', '-')} must be {bounds}, not {value:g}")
