"""The options of distillation. Torch-free."""

from dataclasses import dataclass
from typing import Annotated, Literal

from biosqueeze import registry
from biosqueeze.data.text.mask_rate import MaskUnit
from biosqueeze.distillation.losses.presets import LOSS_PRESETS, STUDENT_LOSSES
from biosqueeze.errors import UsageError
from biosqueeze.options import (
    Bounds,
    Common,
    Group,
    OnDisk,
    OnlyWith,
    Requires,
    Suggests,
    Syntax,
    between_0_and_1,
    positive_numbers,
)
from biosqueeze.tasks.formulation import ReadingOptions
from biosqueeze.training.options import (
    EPOCHS,
    MOST_EPOCHS,
    PATIENCE,
    PLATEAU_GOAL_SHARE_LONG,
    PLATEAU_PATIENCE,
    PLATEAU_PATIENCE_AT_GOAL,
    PRECISIONS,
    SCHEDULES,
    TrainingOptions,
)

_NUMBERS = Syntax("X,X,...", positive_numbers, "2,1", is_list=True)


@dataclass(frozen=True, kw_only=True)
class DistillationOptions(ReadingOptions, TrainingOptions):
    """How to train a student on the outputs of its teachers."""

    epochs: Annotated[
        float,
        f"{EPOCHS} Without this option, a training on a task with --data ends when dev scores stop rising.",
        Bounds(above=0, most=MOST_EPOCHS),
        Common(),
        Group.OPTIMISATION,
    ] = 3.0
    schedule: Annotated[
        Literal["linear", "cosine", "wsd", "plateau"],
        f"{SCHEDULES} On a task with --data the default is plateau, unless --epochs or --steps is given.",
        Group.OPTIMISATION,
    ] = "linear"
    precision: Annotated[
        Literal["auto", "fp32", "bf16"],
        f"{PRECISIONS}; then the products of a teacher are in int8 on CPUs with VNNI.",
    ] = "auto"
    patience: Annotated[
        int | None,
        PATIENCE.format(
            f"{PLATEAU_PATIENCE}, {PLATEAU_PATIENCE_AT_GOAL} from the teacher's score on (of long sequences from "
            f"{PLATEAU_GOAL_SHARE_LONG:.0%} of it)"
        ),
    ] = None

    loss: Annotated[
        tuple[str, ...],
        f"Loss or loss preset with its weight, repeatable. Presets: {', '.join(LOSS_PRESETS)}. Losses: "
        f"{', '.join(registry.names('objectives'))}. Default on plain text: those of the --student's "
        f"paper ({', '.join(f'{name}: {losses}' for name, losses in STUDENT_LOSSES.items())}), else distilbert; "
        "on a task: task; of texts that are encoded separately: text-pairs.",
        Syntax("NAME[=WEIGHT]"),
        Suggests(lambda: (*LOSS_PRESETS, *registry.names("objectives"))),
        Common(),
        Group.LOSSES,
    ] = ()
    temperature: Annotated[
        float | None,
        "Temperature of the softmax of teacher and student. Default: the preset's; 2 for single losses.",
        Bounds(above=0, most=1000),
        Group.LOSSES,
    ] = None
    layer_map: Annotated[
        str | None,
        "Teacher layer for each student layer: source (the layer it was copied from), uniform, every-other, 2i+1, "
        "last, top, or pairs STUDENT:TEACHER counted from 1, such as 1:3,2:6. Default: the preset's; "
        "mostly source if known, else uniform.",
        Group.LOSSES,
    ] = None
    layer_weights: Annotated[
        str | None,
        "Weight of each pair of the layer map, such as 1,1,2. Default: 1 for all.",
        _NUMBERS,
        Group.LOSSES,
    ] = None
    projection: Annotated[
        Literal["shared", "per-layer"] | None,
        "Linear projection from the student's hidden size to the teacher's: one for all layers, or one per layer. "
        "Default: the preset's.",
        Group.LOSSES,
    ] = None
    relation_heads: Annotated[
        int | None,
        "Relation heads of the loss minilmv2. Default: the teacher's attention heads.",
        Bounds(least=1),
        Group.LOSSES,
    ] = None
    mask_rate: Annotated[
        float,
        "Share of the tokens that are masked, on plain text.",
        between_0_and_1(),
        Group.LOSSES,
    ] = 0.15
    mask_unit: Annotated[
        MaskUnit,
        "What is masked at once, on plain text: single pieces, whole words, n-grams of 1 to 3 words (ALBERT), or "
        "longer spans (SpanBERT).",
        Group.LOSSES,
    ] = "piece"
    maskings: Annotated[
        int | None,
        "Number of different maskings of each text, used in turn. Default: a new one in each epoch; 1 with "
        "--cache-teacher.",
        Bounds(least=1),
        Group.LOSSES,
    ] = None
    fit_head: Annotated[
        int | None,
        "Steps to train a masked-language-model head for a teacher that lacks one; its encoder is frozen. Default: at "
        "most 2000 with a --student that brings the losses of its paper; else none, and its losses are dropped.",
        Bounds(least=1),
        Group.MODELS,
    ] = None
    dropout: Annotated[
        float | None,
        "The student's dropout during training. Default: that of its config.json.",
        Bounds(least=0, below=1),
        Group.MODELS,
    ] = None
    types: Annotated[
        tuple[str, ...], "Entity type to keep, repeatable; all others become O.", Requires("data"), Group.DATA
    ] = ()
    negative: Annotated[
        str | None,
        'Label of "no relation". Default: recognised by its usual names.',
        Requires("data"),
        Group.DATA,
    ] = None
    dev_share: Annotated[
        float | None,
        "Share of --data's train split to hold out as dev, in place of its own dev split.",
        between_0_and_1(),
        Requires("data"),
        Group.DATA,
    ] = None
    documents: Annotated[
        bool,
        "Join the lines of a document, up to --max-length; blank lines separate documents, as in what biosqueeze "
        "corpus writes. Default: each line is a text.",
        Requires("corpus"),
        Group.DATA,
    ] = False
    unlabelled: Annotated[
        float,
        "Sentences of --corpus per example of --data, drawn again in each epoch.",
        Bounds(least=0, most=1_000_000),
        Requires("data"),
        Requires("corpus"),
        Group.LABELLED,
    ] = 1.0
    augment: Annotated[
        int,
        "Copies of each example with some words replaced by a masked language model (TinyBERT); for ner, pico and "
        "classification.",
        Bounds(least=0),
        Requires("data", why="the labelled examples that are copied"),
        Group.LABELLED,
    ] = 0
    augment_with: Annotated[
        str | None,
        "Masked language model for --augment: directory or Hub id. Default: the model that the teacher was fine-tuned "
        "from.",
        OnDisk(may_be_name=True),
        Requires("augment"),
        Group.LABELLED,
    ] = None
    warm_start: Annotated[
        Literal["none", "finetune"],
        "finetune: fine-tune the student on --data before it is distilled.",
        Requires("data", why="the labels that it is fine-tuned on"),
        Group.LABELLED,
    ] = "none"
    warm_epochs: Annotated[
        float,
        "Passes over --data in the warm start.",
        Bounds(above=0, most=MOST_EPOCHS),
        OnlyWith("warm_start", "finetune"),
        Group.LABELLED,
    ] = 3.0
    cache_teacher: Annotated[
        str | None,
        "Directory for the teacher's logits and hidden states: computed once, read in later epochs and by later "
        "students. Not for losses on attention.",
        OnDisk(is_output=True),
        Group.CACHE,
    ] = None
    cache_top: Annotated[
        int | None,
        "Number of highest logits to store for each masked token. Default: 64.",
        Bounds(least=1),
        Requires("cache_teacher"),
        Group.CACHE,
    ] = None
    teacher_weights: Annotated[
        str | None,
        "Weight of each of several teachers, such as 2,1. Default: 1 for all.",
        _NUMBERS,
        Group.MODELS,
    ] = None

    @property
    def repeated_maskings(self) -> int | None:
        """Number of maskings of a text that are used in turn; None: a new one in each epoch."""
        return self.maskings or (1 if self.cache_teacher else None)


def counted_weights(flag: str, text: str | None, count: int, of_what: str) -> tuple[float, ...]:
    """Parse weights with commas, of which there must be `count`; () if the option was not given.

    Raises:
        UsageError: there are more or fewer.
    """
    if text is None:
        return ()
    weights = positive_numbers(text)
    if len(weights) != count:
        raise UsageError(f"{flag} {text!r}: expected {count} positive numbers, one for each {of_what}")
    return weights
