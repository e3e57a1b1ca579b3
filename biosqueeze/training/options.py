"""The options that every training stage has. Torch-free."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from biosqueeze.errors import UsageError
from biosqueeze.options import WritingOptions
from biosqueeze.progress import note


def fitting_length(asked: int, positions: int) -> int:
    """The length of sequences: what was asked for, or what the model has positions for, with a note."""
    if asked > positions:
        note(f"sequences are cut into windows of {positions} tokens and not {asked}: the model has no more positions")
    return min(asked, positions)


_POSITIVE = 1e-9
_MOST_EPOCHS = 1e6
_RANGES: dict[str, tuple[float, float]] = {
    "epochs": (_POSITIVE, _MOST_EPOCHS),
    "steps": (1, math.inf),
    "batch_size": (1, math.inf),
    "accumulate": (1, math.inf),
    "lr": (0, math.inf),
    "warmup": (0, 1),
    "weight_decay": (0, math.inf),
    "clip": (_POSITIVE, math.inf),
    "max_length": (3, math.inf),
    "save_every": (1, math.inf),
    "workers": (0, math.inf),
    "eval_every": (1, math.inf),
    "patience": (1, math.inf),
    "layer_decay": (_POSITIVE, 1),
    "reinit_layers": (0, math.inf),
    "smart": (0, math.inf),
    "train_size": (1, math.inf),
    "temperature": (_POSITIVE, 1e3),
    "relation_heads": (1, math.inf),
    "fit_head": (1, math.inf),
    "unlabelled": (0, 1e6),
    "augment": (0, math.inf),
    "warm_epochs": (_POSITIVE, _MOST_EPOCHS),
    "cache_top": (1, math.inf),
    "maskings": (1, math.inf),
}


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(WritingOptions):
    """How long, how fast and how precisely to train."""

    epochs: Annotated[float, "Passes over the training data; --steps takes precedence."] = 3.0
    steps: Annotated[int | None, "Optimiser steps, whatever the size of the data."] = None
    batch_size: Annotated[int, "Sequences in a batch, in each process that trains."] = 16
    accumulate: Annotated[int, "Batches whose gradients make one optimiser step."] = 1
    auto_batch: Annotated[
        bool, "Try the longest batch first, and cut it into as many parts (--accumulate) as the memory asks for."
    ] = False
    lr: Annotated[float, "Peak learning rate; it rises from 0 and falls back to 0 in straight lines."] = 1e-4
    warmup: Annotated[float, "Share of the steps in which the learning rate rises."] = 0.1
    weight_decay: Annotated[float, "AdamW's weight decay (not on biases and layer norms)."] = 0.01
    clip: Annotated[float, "Largest norm of the gradient; what is longer is scaled down to it."] = 1.0
    precision: Annotated[
        Literal["auto", "fp32", "bf16"],
        "bf16 is autocast; auto takes it where the GPU or the CPU has units for it.",
    ] = "auto"
    max_length: Annotated[
        int,
        "Tokens in a sequence; longer plain text, tagged sentences and passages of questions become windows, other "
        "inputs are cut, and how many is said.",
    ] = 128
    save_every: Annotated[int, "Steps between two saved training states, for --resume."] = 500
    resume: Annotated[bool, "Go on from the last saved state of an interrupted run."] = False
    workers: Annotated[int, "Processes that prepare batches; 0 does it in the main process."] = 0
    gradient_checkpointing: Annotated[
        bool, "Compute each layer anew in the backward pass: about a third slower, and far less memory."
    ] = False
    compile: Annotated[bool, "Compile the model by torch.compile: a slow start, and faster steps after it."] = False
    tracker: Annotated[
        Literal["tensorboard", "wandb", "mlflow"] | None,
        "Log losses and scores there too; metrics.jsonl has them always. TensorBoard's files go to OUT/runs.",
    ] = None
    eval_every: Annotated[int | None, "Steps between two scorings on dev; once after each epoch if left out."] = None
    patience: Annotated[
        int | None, "Stop after so many scorings on dev in a row without a better one; never if left out."
    ] = None

    def __post_init__(self) -> None:
        """Refuse what no training can be done with.

        Raises:
            UsageError: a number is out of its range.
        """
        super().__post_init__()
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name, None)
            if value is not None and not low <= value <= high:
                least = "above 0" if low == _POSITIVE else f"at least {low:g}"
                bounds = least if math.isinf(high) else f"{least} and at most {high:,.0f}"
                raise UsageError(f"--{name.replace('_', '-')} must be {bounds}, not {value:g}")
