"""The options of every training stage. Torch-free."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal

from biosqueeze.options import AUTO_DEVICE, Bounds, Common, DeviceOption, Group, Syntax, WritingOptions

MOST_EPOCHS = 1_000_000
PLATEAU: Final = "plateau"
PLATEAU_STEPS, PLATEAU_EVAL_EPOCHS = 6_000, 10
PLATEAU_EVAL_EVERY, PLATEAU_EVAL_EVERY_LONG, PLATEAU_EVAL_TOKENS = 200, 100, 400_000
PLATEAU_PATIENCE, PLATEAU_PATIENCE_AT_GOAL, PLATEAU_GOAL_SHARE_LONG = 6, 3, 0.99


def parse_betas(text: str) -> tuple[float, float]:
    """Parse --betas, such as 0.9,0.98.

    Raises:
        ValueError: there are not two numbers from 0 to below 1.
    """
    first, second = (float(part) for part in text.split(","))
    if not (0 <= first < 1 and 0 <= second < 1):
        raise ValueError(text)
    return first, second


EPOCHS = "Passes over the training data. Unused with --steps."
SCHEDULES = (
    "How the learning rate falls to 0 after the warm-up. wsd (warm-up, stable, decay): in the last tenth of the "
    "steps. plateau: once dev scores no longer rise, the training ends at the constant rate; in the last fifth of "
    f"--epochs, --steps or --hours, by default of {PLATEAU_STEPS:,} steps, the rate falls. The mean of the weights of "
    "the last steps is scored and kept."
)
PRECISIONS = (
    "Precision of the computation. bf16 is autocast; auto is bf16 where GPU or CPU compute it faster, else fp32"
)
PATIENCE = (
    "Stop after this number of evaluations on dev in a row without a better score. Default: never; with --schedule "
    "plateau {}, and more with few examples, which are evaluated more often."
)


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(WritingOptions):
    """How long, how fast and how precisely to train."""

    SEVERAL_PROCESSES: ClassVar[bool] = True

    epochs: Annotated[
        float,
        EPOCHS,
        Bounds(above=0, most=MOST_EPOCHS),
        Common(),
        Group.OPTIMISATION,
    ] = 3.0
    steps: Annotated[
        int | None, "Optimiser steps, in place of --epochs.", Bounds(least=1), Common(), Group.OPTIMISATION
    ] = None
    hours: Annotated[
        float | None,
        "Most hours to train, with --schedule plateau.",
        Bounds(above=0),
        Group.OPTIMISATION,
    ] = None
    batch_size: Annotated[
        int,
        "Sequences in a batch, per process.",
        Bounds(least=1),
        Common(),
        Group.OPTIMISATION,
    ] = 16
    accumulate: Annotated[
        int,
        "Batches whose mean loss one optimiser step lowers.",
        Bounds(least=1),
        Group.OPTIMISATION,
    ] = 1
    auto_batch: Annotated[
        bool,
        "If the longest batch does not fit into memory, lower --batch-size and raise --accumulate until it does.",
        Group.MACHINE,
    ] = False
    lr: Annotated[
        float,
        "Peak learning rate; it rises linearly from 0 and falls as --schedule says.",
        Bounds(least=0),
        Common(),
        Group.OPTIMISATION,
    ] = 1e-4
    schedule: Annotated[
        Literal["linear", "cosine", "wsd", "plateau"],
        SCHEDULES,
        Group.OPTIMISATION,
    ] = "linear"
    warmup: Annotated[
        float,
        "Share of the steps (with --schedule plateau of the first 1,000) in which the learning rate rises.",
        Bounds(least=0, most=1),
        Group.OPTIMISATION,
    ] = 0.1
    optimizer: Annotated[
        Literal["adamw", "lamb"],
        "AdamW, or LAMB for batches of thousands of sequences.",
        Group.OPTIMISATION,
    ] = "adamw"
    betas: Annotated[
        str,
        "Decay rates of the optimiser's means of the gradient and of its square.",
        Syntax("BETA1,BETA2", parse_betas, "0.9,0.98", is_list=True),
        Group.OPTIMISATION,
    ] = "0.9,0.999"
    epsilon: Annotated[
        float,
        "Added to the root of the mean square before the optimiser divides by it.",
        Bounds(above=0),
        Group.OPTIMISATION,
    ] = 1e-8
    weight_decay: Annotated[
        float,
        "Weight decay; not applied to biases and layer norms.",
        Bounds(least=0),
        Group.OPTIMISATION,
    ] = 0.01
    clip: Annotated[
        float,
        "Maximum norm of the gradient; a longer one is scaled down to it.",
        Bounds(above=0),
        Group.OPTIMISATION,
    ] = 1.0
    device: DeviceOption = AUTO_DEVICE
    precision: Annotated[
        Literal["auto", "fp32", "bf16"],
        f"{PRECISIONS}.",
        Group.MACHINE,
    ] = "auto"
    max_length: Annotated[
        int,
        "Tokens in a sequence. Longer texts are split into windows (plain text, ner, pico, qa); other inputs are cut, "
        "and the number of cut ones is printed.",
        Bounds(least=3),
        Group.DATA,
    ] = 128
    save_every: Annotated[
        int, "Steps between two saved training states (see --resume).", Bounds(least=1), Group.OUTPUT
    ] = 500
    resume: Annotated[
        bool | Literal["auto"],
        "Continue an interrupted run from its last saved training state. With auto, start where none is saved: for "
        "jobs that may be ended at any time and are then repeated.",
        Group.OUTPUT,
    ] = False
    workers: Annotated[
        int, "Processes that prepare batches; 0: the main process prepares them.", Bounds(least=0), Group.MACHINE
    ] = 0
    gradient_checkpointing: Annotated[
        bool,
        "Compute the layers again in the backward pass: far less memory, a third more computing.",
        Group.MACHINE,
    ] = False
    compile: Annotated[bool, "Compile the model with torch.compile: slower start, faster steps.", Group.MACHINE] = False
    tracker: Annotated[
        Literal["tensorboard", "wandb", "mlflow"] | None,
        "Also log losses and scores there (TensorBoard: in OUT/runs). OUT/metrics.jsonl always has them.",
        Group.OUTPUT,
    ] = None
    eval_every: Annotated[
        int | None,
        "Steps between two evaluations on dev. Default: one after each epoch; with --schedule plateau "
        f"{PLATEAU_EVAL_EVERY}, down to {PLATEAU_EVAL_EVERY_LONG} of long sequences, and {PLATEAU_EVAL_EPOCHS} epochs "
        "of few examples.",
        Bounds(least=1),
        Group.DEV,
    ] = None
    patience: Annotated[
        int | None,
        PATIENCE.format(PLATEAU_PATIENCE),
        Bounds(least=1),
        Group.DEV,
    ] = None

    @property
    def length(self) -> str:
        """How long the training is, for people."""
        steps = f"{self.steps:,} steps" if self.steps else f"{self.epochs:g} epochs"
        if self.schedule != PLATEAU:
            return steps
        most = f"{self.most_steps:,} steps" if self.most_steps else steps
        limits = [most] if self.hours is None else [f"{self.hours:g} hours", *([] if self.ends_by_time else [most])]
        return f"until dev scores stop rising, at most {' or '.join(limits)}"

    @property
    def ends_by_time(self) -> bool:
        """Whether only dev scores and --hours end the training."""
        return bool(self.hours) and not self.steps and not self.is_given("epochs")

    @property
    def most_steps(self) -> int | None:
        """Optimiser steps, at most; None where they follow from the number of epochs."""
        is_open = self.schedule == PLATEAU and not self.is_given("epochs")
        return self.steps or (PLATEAU_STEPS if is_open else None)
