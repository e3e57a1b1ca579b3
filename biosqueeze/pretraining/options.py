"""The options of pretraining. Torch-free."""

from dataclasses import dataclass
from typing import Annotated, Literal

from biosqueeze.data.text.mask_rate import MaskRate, MaskUnit
from biosqueeze.models.named.shapes import SHAPES
from biosqueeze.options import (
    Bounds,
    Common,
    Excludes,
    Group,
    Hidden,
    OnDisk,
    OnlyWith,
    Requires,
    Suggests,
    Syntax,
    between_0_and_1,
    whole_numbers,
)
from biosqueeze.pretraining.cost_options import CostOptions
from biosqueeze.pretraining.rtd_options import ReplacedTokenOptions

Objective = Literal["mlm", "mlm+nsp", "mlm+sop", "rtd"]


@dataclass(frozen=True, kw_only=True)
class PretrainingOptions(ReplacedTokenOptions, CostOptions):
    """What to train on plain text, from which weights, and how it is scored."""

    shape: Annotated[
        str | None,
        f"Train a new model of this shape from random weights: {', '.join(SHAPES)}.",
        Syntax("SHAPE"),
        Suggests(lambda: SHAPES),
        Requires("tokenizer", why="the vocabulary of the new model"),
        Common(),
        Group.SHAPE,
    ] = None
    tokenizer: Annotated[
        str | None,
        "Tokenizer of the new model: a directory that biosqueeze vocab wrote, or a checkpoint.",
        OnDisk(may_be_name=True),
        Requires("shape"),
        Common(),
        Group.SHAPE,
    ] = None
    layers: Annotated[
        int | None, "Layers, in place of the shape's.", Bounds(least=1), Requires("shape"), Group.SHAPE
    ] = None
    hidden: Annotated[
        int | None,
        "Hidden size, in place of the shape's; the heads keep their size, and the FFN its ratio to it.",
        Bounds(least=1),
        Requires("shape"),
        Group.SHAPE,
    ] = None
    heads: Annotated[
        int | None, "Attention heads, in place of the shape's.", Bounds(least=1), Requires("shape"), Group.SHAPE
    ] = None
    ffn: Annotated[
        int | None, "FFN size, in place of the shape's.", Bounds(least=1), Requires("shape"), Group.SHAPE
    ] = None
    positions: Annotated[
        int | None,
        "Longest input that the model will have, in place of the shape's.",
        Bounds(least=3),
        Requires("shape"),
        Group.SHAPE,
    ] = None
    embedding: Annotated[
        int | None,
        "Width of the embeddings, in place of the shape's (ELECTRA, ALBERT).",
        Bounds(least=1),
        Requires("shape"),
        Group.SHAPE,
    ] = None
    dropout: Annotated[
        float | None,
        "Dropout during this training. Default: that of config.json, 0.1 for most new models.",
        Bounds(least=0, below=1),
        Group.OPTIMISATION,
    ] = None
    corpus: Annotated[
        tuple[str, ...],
        "Plain text, repeatable: what biosqueeze corpus wrote, .txt, .jsonl, .gz, a directory of them, or "
        "hub:NAME[:FIELD].",
        OnDisk(),
        Common(),
        Group.DATA,
    ]
    field: Annotated[str, "Field of a JSONL corpus that holds the text.", Group.DATA] = "text"
    held_out: Annotated[
        float | None,
        "Share of the corpus to score the model on, which is not trained on. Default: the corpus's own held-out texts, "
        "if it has any.",
        between_0_and_1(),
        Common(),
        Group.DATA,
    ] = None
    long_length: Annotated[
        int | None,
        "Tokens in a sequence for the last part of the steps, see --long-share.",
        Bounds(least=3),
        Excludes("auto_batch", why="it tries one length alone"),
        Group.DATA,
    ] = None
    long_share: Annotated[
        float,
        "Share of the steps, the last ones, at --long-length.",
        between_0_and_1(),
        Requires("long_length"),
        Group.DATA,
    ] = 0.1
    long_batch_size: Annotated[
        int | None,
        "Sequences in a batch at --long-length, per process. Default: as many as give the same number of tokens.",
        Bounds(least=1),
        Requires("long_length"),
        Group.DATA,
    ] = None
    objective: Annotated[
        Objective,
        "mlm: predict masked tokens. mlm+nsp: also whether one text follows the other (BERT). mlm+sop: also which of "
        "two comes first (ALBERT). rtd: find the tokens that a small generator replaced (ELECTRA).",
        Common(),
        Group.OBJECTIVE,
    ] = "mlm"
    adversarial: Annotated[
        bool,
        "Also train for equal predictions with small noise on the embeddings (ALUM; PubMedBERT, table 9): a step takes "
        "almost three times as long.",
        OnlyWith("objective", "mlm", "mlm+nsp", "mlm+sop"),
        Excludes("compile", why="its noise is no part of a compiled model"),
        Group.OBJECTIVE,
    ] = False
    mask_unit: Annotated[
        MaskUnit,
        "What is masked at once: single pieces, whole words, n-grams of 1 to 3 words (ALBERT), or longer "
        "spans (SpanBERT).",
        Common(),
        Group.OBJECTIVE,
    ] = "piece"
    mask_rate: Annotated[
        str,
        "Share of the tokens that is masked; FROM:TO:LEVELS climbs in equal steps, such as 0.05:0.25:5.",
        Syntax("RATE", MaskRate.parse, "0.15 or 0.05:0.25:5"),
        Group.OBJECTIVE,
    ] = "0.15"
    maskings: Annotated[
        int | None,
        "Number of different maskings of each text, used in turn. Default: a new one in each epoch.",
        Bounds(least=1),
        Group.OBJECTIVE,
    ] = None
    eval_every: Annotated[
        int | None,
        "Steps between two scores on held-out text. Default: once in each epoch; always at the end.",
        Bounds(least=1),
        Group.HELD_OUT,
    ] = None
    schedule: Annotated[
        Literal["linear", "cosine", "wsd"],
        "How the learning rate falls to 0 after the warm-up. wsd (warm-up, stable, decay): in the last tenth of the "
        "steps.",
        Group.OPTIMISATION,
    ] = "linear"
    warmup: Annotated[
        float, "Share of the steps in which the learning rate rises.", Bounds(least=0, most=1), Group.OPTIMISATION
    ] = 0.1
    hours: Annotated[float | None, "Unused: the number of steps is given.", Hidden()] = None
    patience: Annotated[int | None, "Unused: the weights of the last step are kept.", Hidden()] = None
    probe: Annotated[
        tuple[str, ...],
        "Labelled data that a copy of the model is fine-tuned on at the steps of --probe-at, repeatable; its score "
        "on dev is logged.",
        Syntax("NAME=DIR"),
        Group.HELD_OUT,
    ] = ()
    probe_at: Annotated[
        str | None,
        "Steps of --probe, such as 1000,5000. Default: the last step.",
        Syntax("STEP,STEP,...", whole_numbers, "1000,5000", is_list=True),
        Requires("probe"),
        Group.HELD_OUT,
    ] = None
    lr: Annotated[float, "Peak learning rate; it rises linearly from 0 and falls as --schedule says."] = 1e-4
    batch_size: Annotated[int, "Sequences in a batch, per process."] = 32
    max_length: Annotated[int, "Tokens in a sequence."] = 128

    @property
    def pair(self) -> Literal["nsp", "sop"] | None:
        """The loss on pairs of texts."""
        match self.objective:
            case "mlm+nsp":
                return "nsp"
            case "mlm+sop":
                return "sop"
        return None
