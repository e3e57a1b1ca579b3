"""The options of fine-tuning. Torch-free."""

from dataclasses import dataclass
from typing import Annotated, Literal

from biosqueeze.options import Bounds, Excludes, Group
from biosqueeze.training.options import TrainingOptions

# Options of `finetune` that a search sets for its runs, or that are about the search and its output as a whole.
OF_SEARCHES = ("checkpoint", "sources", "out", "force", "resume", "seed", "grid", "seeds", "folds", "jobs")


@dataclass(frozen=True, kw_only=True)
class FineTuningOptions(TrainingOptions):
    """Methods for small labelled data sets; all are off by default."""

    layer_decay: Annotated[
        float,
        "Learning rate of a layer as a share of that of the layer above it; the embeddings have the lowest. 1: the "
        "same rate for all.",
        Bounds(above=0, most=1),
        Group.OPTIMISATION,
    ] = 1.0
    reinit_layers: Annotated[
        int,
        "Number of top layers to initialise again at random, with the pooler: they are the most specialised to "
        "pretraining.",
        Bounds(least=0),
        Group.OPTIMISATION,
    ] = 0
    class_weights: Annotated[
        Literal["none", "balanced"],
        "Weights of the labels in the loss. balanced: inverse to their counts in train.",
        Group.OPTIMISATION,
    ] = "none"
    smart: Annotated[
        float,
        "Weight of SMART's smoothness loss: the change of the prediction under small adversarial noise on the "
        "embeddings. Training takes about three times as long. 0: off.",
        Bounds(least=0),
        Excludes("compile", why="its noise is no part of a compiled model"),
        Group.OPTIMISATION,
    ] = 0.0
    train_size: Annotated[
        int | None,
        "Number of training examples to use, drawn with --seed. Classes keep their proportions, labels and tags "
        "of which an example has several need not. Default: all.",
        Bounds(least=1),
        Group.DATA,
    ] = None
