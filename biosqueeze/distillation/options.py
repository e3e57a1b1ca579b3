"""The options of distillation, and what they decide before anything heavy is loaded. Torch-free."""

from dataclasses import dataclass
from math import inf
from typing import Annotated, Literal

from biosqueeze import registry
from biosqueeze.distillation.loss_presets import LOSS_PRESETS
from biosqueeze.errors import UsageError
from biosqueeze.tasks.formulation import ReadingOptions
from biosqueeze.training.options import TrainingOptions


@dataclass(frozen=True, kw_only=True)
class DistillationOptions(ReadingOptions, TrainingOptions):
    """How a student learns from its teachers."""

    loss: Annotated[
        tuple[str, ...],
        f"NAME[=WEIGHT], repeatable: a named mix ({', '.join(LOSS_PRESETS)}) or a loss of your own mix "
        f"({', '.join(registry.names('objectives'))}); distilbert or, for a task, task if left out.",
    ] = ()
    temperature: Annotated[
        float | None, "Softens both distributions; the mix's own if left out, 2 for losses of your own."
    ] = None
    layer_map: Annotated[
        str | None,
        "Which layer learns from which: origin (the one that it was cut from), uniform, every-other, 2i+1, last, top, "
        "or pairs STUDENT:TEACHER counted from 1, like 1:3,2:6. If left out, the mix's own; for most that is origin "
        "where it is known, else uniform.",
    ] = None
    layer_weights: Annotated[str | None, "Weight of each pair of the layer map, such as 1,1,2; all 1 if left out."] = (
        None
    )
    projection: Annotated[
        Literal["shared", "per-layer"] | None,
        "How hidden states reach the teacher's width: through one linear layer, or one for each; the mix's own if left "
        "out.",
    ] = None
    relation_heads: Annotated[int | None, "Heads of minilmv2's relations; the teacher's number if left out."] = None
    mask_rate: Annotated[float, "Share of the tokens that are masked without a task."] = 0.15
    fit_head: Annotated[
        int | None,
        "Steps in which a teacher that lacks its masked-language-model head gets one, the encoder frozen.",
    ] = None
    dev_share: Annotated[
        float | None, "Share of --data's train split to hold out as dev, in place of a dev split that it has or lacks."
    ] = None
    unlabelled: Annotated[float, "Corpus sentences per labelled one, drawn afresh in each epoch."] = 1.0
    augment: Annotated[
        int, "Copies of each labelled example with some words replaced (TinyBERT); for ner, pico and classification."
    ] = 0
    augment_with: Annotated[
        str | None,
        "The masked language model that proposes the words: directory or Hub id; what the teacher was fine-tuned from "
        "if left out.",
    ] = None
    warm_start: Annotated[
        Literal["none", "finetune"], "finetune: the student first learns the labels of --data on its own."
    ] = "none"
    warm_epochs: Annotated[float, "Passes over the labelled data in a warm start."] = 3.0
    cache_teacher: Annotated[
        str | None,
        "A directory that keeps what the teacher says (soft labels, hidden states): later epochs and later students "
        "read it there and skip the teacher. Several students may share it. Not with losses that compare attention.",
    ] = None
    cache_top: Annotated[
        int | None, "How many of the likeliest tokens --cache-teacher keeps for each masked one; 64 if left out."
    ] = None
    maskings: Annotated[
        int | None,
        "How many maskings of each text come in turn; if left out, another one in each epoch, or a single one with "
        "--cache-teacher.",
    ] = None
    dropout: Annotated[float | None, "The student's dropout while it trains; its config's if left out."] = None

    def __post_init__(self) -> None:
        """Refuse what cannot be distilled with.

        Raises:
            UsageError: a number is out of its range.
        """
        super().__post_init__()
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise UsageError(f"--dropout is a share from 0 to below 1, not {self.dropout:g}")
        if not 0 < self.mask_rate < 1:
            raise UsageError(f"--mask-rate is a share between 0 and 1, not {self.mask_rate:g}")
        if self.dev_share is not None and not 0 < self.dev_share < 1:
            raise UsageError(f"--dev-share must be between 0 and 1, not {self.dev_share:g}")
        if self.augment_with and not self.augment:
            raise UsageError("--augment-with is for --augment; give --augment 1 too, or leave it out")
        if self.cache_top is not None and not self.cache_teacher:
            raise UsageError("--cache-top is for --cache-teacher DIR; give that too, or leave it out")
        if self.warm_start == "none" and self.warm_epochs != DistillationOptions.warm_epochs:
            raise UsageError("--warm-epochs is for a warm start; give --warm-start finetune too, or leave it out")

    @property
    def repeated_maskings(self) -> int | None:
        """How many maskings of a text come in turn; None is another one in each epoch."""
        return self.maskings or (1 if self.cache_teacher else None)


def layer_weights(asked: str | None, pairs: int) -> tuple[float, ...]:
    """What --layer-weights says for each pair of layers; () where it is left out.

    Raises:
        UsageError: they are not as many positive numbers as there are pairs.
    """
    if asked is None:
        return ()
    try:
        weights = tuple(float(word) for word in asked.split(","))
    except ValueError:
        weights = ()
    if len(weights) != pairs or not all(0 < weight < inf for weight in weights):
        raise UsageError(f"--layer-weights {asked!r}: expected {pairs} positive numbers, one for each pair of layers")
    return weights
