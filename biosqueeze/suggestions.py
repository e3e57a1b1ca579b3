"""Find the name that was meant by an unknown one: another spelling, the name in other tools, or a typing error."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher

# Least share of equal letters (difflib's ratio). Of three letters, one may be wrong, but not the first.
_SIMILAR, _SIMILAR_SHORT, _SHORT = 0.75, 0.66, 3

# Options, tasks and commands as transformers' scripts, its Trainer, and other command lines call them.
_OTHER_TOOLS: Mapping[str, tuple[str, ...]] = {
    "accumulate": ("gradient accumulation steps", "grad accum"),
    "batch-size": (
        *("per device train batch size", "per device eval batch size", "per gpu train batch size"),
        *("train batch size", "eval batch size", "bs"),
    ),
    "checkpoint": ("model", "model name", "model name or path", "model path", "pretrained model name or path"),
    "checkpoints": ("model", "models", "model name or path"),
    "classification": (
        *("text classification", "sequence classification", "document classification", "sentiment analysis"),
        *("multi label", "multi label classification", "single label", "single label classification"),
    ),
    "clip": ("max grad norm", "gradient clipping"),
    "compile": ("torch compile",),
    "corpus": ("train file", "text", "text file"),
    "data": ("data dir", "dataset", "dataset name", "train file", "validation file", "test file", "train data"),
    "dev-share": ("validation split percentage", "validation split", "val split"),
    "epochs": ("num train epochs", "num epochs", "max epochs", "n epochs"),
    "eval-every": ("eval steps",),
    "evaluate": ("eval", "test", "score"),
    "export": ("convert", "onnx"),
    "finetune": ("train", "fit"),
    "ffn": ("intermediate size", "feed forward size"),
    "force": ("overwrite", "overwrite output dir", "yes"),
    "heads": ("num attention heads", "num heads"),
    "hidden": ("hidden size", "d model"),
    "input": ("input file", "test file"),
    "labels": ("id2label", "label list", "label names"),
    "layers": ("num hidden layers", "num layers"),
    "length": ("max seq length", "sequence length", "max length"),
    "lr": ("learning rate", "lrate"),
    "mask-rate": ("mlm probability", "mlm prob"),
    "max-length": ("max seq length", "max seq len", "max sequence length", "model max length"),
    "metric": ("metric for best model",),
    "ner": ("token classification", "named entity recognition", "tagging", "sequence labeling", "sequence labelling"),
    "nli": ("natural language inference", "textual entailment", "entailment", "sentence pair classification"),
    "out": ("output", "output dir", "output file", "output path", "save dir"),
    "patience": ("early stopping patience",),
    "precision": ("fp16", "bf16", "amp", "mixed precision", "dtype", "torch dtype"),
    "predict": ("infer", "inference", "annotate"),
    "qa": ("question answering", "extractive question answering", "squad"),
    "relation": ("relation extraction", "relation classification", "re"),
    "resume": ("resume from checkpoint",),
    "save-every": ("save steps",),
    "seed": ("random seed", "random state"),
    "shrink": ("prune", "compress"),
    "similarity": ("sentence similarity", "semantic similarity", "semantic textual similarity", "sts", "regression"),
    "steps": ("max steps", "max train steps", "num train steps"),
    "student": ("student model", "student model name or path"),
    "task": ("task name", "task type"),
    "teacher": ("teacher model", "teacher model name or path"),
    "temperature": ("distillation temperature",),
    "threads": ("num threads", "intra op num threads"),
    "tracker": ("report to", "logger"),
    "train-size": ("max train samples",),
    "warmup": ("warmup ratio", "warmup steps", "num warmup steps", "warmup proportion"),
    "workers": ("num workers", "dataloader num workers", "preprocessing num workers"),
}


@dataclass(frozen=True)
class Suggestion:
    """A known name, and whether the unknown one is what other tools call it."""

    name: str
    is_synonym: bool


def suggest(word: str, choices: Iterable[str]) -> Suggestion | None:
    """Return the choice that was meant; None if no choice is near enough.

    Args:
        word: as typed. Letter case, -, _ and spaces do not count.
        choices: the known names, with the dashes of a flag or without.
    """
    plain = plain_name(word)
    if not plain:
        return None
    known = list(choices)
    for name in known:
        if plain_name(name) == plain:
            return Suggestion(name, is_synonym=False)
    for name in known:
        if plain in map(plain_name, _OTHER_TOOLS.get(name.lstrip("-").replace("_", "-").casefold(), ())):
            return Suggestion(name, is_synonym=True)
    beginning = [name for name in known if len(plain) > 1 and plain_name(name).startswith(plain)]
    if len(beginning) == 1:
        return Suggestion(beginning[0], is_synonym=False)
    similarity = {name: _similarity(plain, plain_name(name)) for name in known}
    nearest = max(known, key=similarity.__getitem__, default="")
    return Suggestion(nearest, is_synonym=False) if similarity.get(nearest) else None


def plain_name(name: str) -> str:
    """Return a name without case, -, _ and spaces, for comparison."""
    return name.casefold().replace("-", "").replace("_", "").replace(" ", "")


def _similarity(word: str, name: str) -> float:
    """Return the share of equal letters, or 0.0 below the least share for words of this length."""
    is_short = max(len(word), len(name)) <= _SHORT
    if is_short and word[:1] != name[:1]:
        return 0.0
    ratio = SequenceMatcher(None, word, name).ratio()
    return ratio if ratio >= (_SIMILAR_SHORT if is_short else _SIMILAR) else 0.0
