"""The options of fine-tuning. Torch-free."""

from dataclasses import dataclass
from typing import Annotated, Literal

from biosqueeze.training.options import TrainingOptions


@dataclass(frozen=True, kw_only=True)
class FineTuningOptions(TrainingOptions):
    """What helps on small labelled sets; at the defaults none of it acts."""

    layer_decay: Annotated[
        float,
        "Each layer learns at this share of the rate of the layer above it, the embeddings slowest; 1 is one rate.",
    ] = 1.0
    reinit_layers: Annotated[
        int, "Top layers (and the pooler) to draw anew from the seed: pretraining has specialised them most."
    ] = 0
    class_weights: Annotated[
        Literal["none", "balanced"], "balanced: rare labels weigh more in the loss, by their counts in train."
    ] = "none"
    smart: Annotated[
        float,
        "Weight of SMART's smoothness term: how far small adversarial noise on the embeddings moves the prediction. "
        "TrainingOptions takes about three times as long.",
    ] = 0.0
    train_size: Annotated[
        int | None, "Train on so many examples only, drawn with the seed, each label in its proportion."
    ] = None
