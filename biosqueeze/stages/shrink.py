"""Keep some layers, neurons, heads and tokens of a checkpoint, or build a student from it by a preset."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from biosqueeze.checkpoint import Checkpoint, open_checkpoint
from biosqueeze.errors import UsageError
from biosqueeze.models.custom_heads.files import check_custom_head, copy_head
from biosqueeze.models.presets import PRESETS, find_preset
from biosqueeze.options import (
    CheckpointArgument,
    Excludes,
    Outcome,
    Plan,
    Purpose,
    Suggests,
    Summary,
    Syntax,
    WritingOptions,
)
from biosqueeze.output import StageRecord, check_output, derive_out, open_output
from biosqueeze.progress import note
from biosqueeze.sentence_layout import copy_sentence_layout
from biosqueeze.summaries import next_after_training, size_of
from biosqueeze.vocabularies.options import VocabularyOptions

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

    from biosqueeze.models.width import Widths
    from biosqueeze.vocabularies.change import VocabularyChange

_NOT_WITH_STUDENT = Excludes("student", why="a preset sets the whole shape")

PURPOSE = Purpose.SMALLER
EXAMPLES = (
    ("Keep 6 layers, spread evenly", "biosqueeze shrink dmis-lab/biobert-v1.1 --layers 6"),
    (
        "Keep half of the feed-forward neurons and heads too",
        "biosqueeze shrink teacher --layers 6 --ffn 1536 --heads 6",
    ),
    (
        "Keep the tokens of abstracts and of a task's data",
        "biosqueeze shrink teacher --vocab-keep pubmed --vocab-keep NCBI-disease",
    ),
    ("Make the untrained student of a named shape", "biosqueeze shrink dmis-lab/biobert-v1.1 --student tiny"),
)


@dataclass(frozen=True, kw_only=True)
class Options(VocabularyOptions, WritingOptions):
    """Remove layers, heads, neurons or tokens, or make a student.

    The kept weights, and the head, are copied unchanged; stock transformers loads the result. Removing costs accuracy:
    distil or fine-tune afterwards. A text of kept tokens alone is encoded as before, so --vocab-keep costs none there.
    """

    NEEDS_ONE_OF: ClassVar[tuple[str, ...]] = (
        "layers",
        "ffn",
        "heads",
        "hidden",
        "student",
        "vocab_keep",
        "tokenizer",
    )

    checkpoint: CheckpointArgument
    layers: Annotated[
        str | None,
        "How many layers to keep (6: spread evenly), which ones (0,2,4), or every-other, odd, top or bottom (the upper "
        "or lower half).",
        Syntax("LAYERS", is_list=True),
        _NOT_WITH_STUDENT,
    ] = None
    ffn: Annotated[
        int | None, "Feed-forward neurons to keep in each layer: those with the largest weights.", _NOT_WITH_STUDENT
    ] = None
    heads: Annotated[
        int | None,
        "Attention heads to keep in each layer; the hidden size becomes heads x head size.",
        _NOT_WITH_STUDENT,
    ] = None
    hidden: Annotated[
        int | None,
        "Hidden size: a multiple of the head size (fewer heads) or of the number of heads (narrower heads).",
        _NOT_WITH_STUDENT,
    ] = None
    student: Annotated[
        str | None,
        f"Make a student of a named shape: {', '.join(PRESETS)}.",
        Syntax("PRESET"),
        Suggests(lambda: PRESETS),
    ] = None

    @property
    def cuts_vocabulary_alone(self) -> bool:
        """Whether the outputs on texts of kept tokens are those of the original, so that nothing needs a training."""
        others = ("layers", "ffn", "heads", "hidden", "student", "tokenizer")
        return all(getattr(self, name) is None for name in others)


@dataclass(frozen=True)
class _KeptShape:
    """What is kept, checked against the checkpoint's config; None keeps all."""

    layers: tuple[int, ...] | None
    widths: "Widths"
    steps: tuple[str, ...]


@dataclass(frozen=True)
class _ShrunkModel:
    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    layers: tuple[int, ...] | None  # see output.StageRecord
    notes: dict[str, Any]


def plan(options: Options) -> Plan:
    """Return what would be cut; read config.json, the tokenizer and the text of --vocab-keep, and no weights."""
    from biosqueeze.models.count import count_parts, parameters_of
    from biosqueeze.models.families import family_of
    from biosqueeze.models.load import detect_head, load_config
    from biosqueeze.models.text_tokenizer import check_tokenizer_files
    from biosqueeze.vocabularies.change import describe_savings, plan_vocabulary

    source = open_checkpoint(options.checkpoint, weights=False)
    check_custom_head(source, "shrink", allowed=("crf",))
    check_tokenizer_files(source)
    out = check_output(_out(options, source), (source,), force=options.force)
    config = load_config(source)
    architecture = family_of(config).architecture(detect_head(source, config))
    steps, changed = _plan_student(options, source) if options.student else _plan_cut(options, config)
    vocabulary = plan_vocabulary(source, options)
    if vocabulary is None:
        after = count_parts(changed, architecture)
    else:
        after = count_parts(vocabulary.new_config(changed), architecture)
        steps = (*vocabulary.steps, *steps, describe_savings(count_parts(config, architecture), after))
    return Plan(out=out, steps=steps, parameters_before=parameters_of(source), parameters_after=after["total"])


def _plan_student(options: Options, source: Checkpoint) -> tuple[tuple[str, ...], "PreTrainedConfig"]:
    from biosqueeze.models.load import load_config
    from biosqueeze.models.students import plan_student

    preset = find_preset(str(options.student))
    steps = (f"make the student {preset.name} of {source.name}: {preset.summary}",)
    return steps, plan_student(load_config(source), preset)


def _plan_cut(options: Options, config: "PreTrainedConfig") -> tuple[tuple[str, ...], "PreTrainedConfig"]:
    from biosqueeze.models.attention_pattern import warn_irregular
    from biosqueeze.models.depth import shallow_config
    from biosqueeze.models.width import narrowed_config

    cut = _kept_shape(options, config)
    changed = narrowed_config(config, cut.widths)
    if cut.layers is None:
        return cut.steps, changed
    warn_irregular(config, cut.layers)
    return cut.steps, shallow_config(changed, cut.layers)


def _kept_shape(options: Options, config: "PreTrainedConfig") -> _KeptShape:
    from biosqueeze.models.depth import choose_layers_of
    from biosqueeze.models.width import choose_widths

    total = config.num_hidden_layers
    layers = choose_layers_of(config, options.layers) if options.layers is not None else None
    widths = choose_widths(config, options.ffn, options.heads, options.hidden)
    if (layers is None or len(layers) == total) and widths.empty and not options.changes_vocabulary:
        raise UsageError(f"the model has this shape already, so nothing would be cut; it has {total} layers")
    steps = []
    if layers is not None:
        steps.append(f"keep layers {', '.join(map(str, layers))} of 0 to {total - 1}")
    if widths.ffn is not None:
        steps.append(f"keep {widths.ffn} feed-forward neurons in each layer")
    steps.extend(_head_steps(config, widths))
    return _KeptShape(layers, widths, tuple(steps))


def _head_steps(config: "PreTrainedConfig", widths: "Widths") -> list[str]:
    from biosqueeze.models.width import narrowed_config

    if widths.heads is None and widths.head_size is None:
        return []
    has, size = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    narrower = f", {widths.head_size} of {size} dimensions of each" if widths.head_size else ""
    hidden = narrowed_config(config, widths).hidden_size
    return [f"keep {widths.heads or has} of {has} heads{narrower}: hidden size {hidden}"]


def _out(options: Options, source: Checkpoint) -> Path:
    if options.out:
        return Path(options.out)
    if options.student:
        return derive_out(source, options.student + ("-vocab" if options.changes_vocabulary else ""))
    letters = {"l": options.layers, "f": options.ffn, "h": options.heads, "d": options.hidden}
    words = [f"{letter}{str(value).replace(',', '_')}" for letter, value in letters.items() if value is not None]
    return derive_out(source, "-".join([*words, *(["vocab"] if options.changes_vocabulary else [])]))


def run(options: Options) -> Outcome:
    """Build the smaller model, compare it with the original, and write it."""
    source = open_checkpoint(options.checkpoint)
    check_custom_head(source, "shrink", allowed=("crf",))

    from biosqueeze.models.count import count_model, parameters_of

    with open_output(_out(options, source), (source,), force=options.force) as output:
        shrunk = _build_student(options, source) if options.student else _cut(options, source)
        before, after = parameters_of(source), count_model(shrunk.model)["total"]
        note(f"parameters: {before:,} -> {after:,} ({after / before:.0%})")
        shrunk.model.save_pretrained(output.path)
        shrunk.tokenizer.save_pretrained(output.path)
        copy_sentence_layout(source.path, output.path)
        copy_head(source, output.path)  # a CRF's scores are between labels, whatever the encoder's shape
        record = StageRecord(stage="shrink", parent=source, options=options, notes=shrunk.notes, layers=shrunk.layers)
        checkpoint = output.finish(record)
    facts = {"parameters_before": before, "parameters_after": after, **shrunk.notes}
    next_words = next_after_training(checkpoint) if options.cuts_vocabulary_alone else _next(checkpoint, source)
    summary = Summary(size=size_of(checkpoint), next_words=next_words)
    return Outcome(checkpoint.path, facts, summary=summary)


def _next(checkpoint: Checkpoint, source: Checkpoint) -> tuple[str, ...]:
    """Return the distillation that follows: on the task of the source, or on plain text."""
    data = source.task.data if source.task else None
    on = ("--data", data or "DIRECTORY") if source.task else ("--corpus", "TEXT.txt.gz")
    return "distill", str(checkpoint.path), "--teacher", source.name, *on


def _build_student(options: Options, source: Checkpoint) -> _ShrunkModel:
    from biosqueeze.models.students import build_student
    from biosqueeze.vocabularies.change import plan_vocabulary

    built = build_student(source, str(options.student), options.seed)
    note(built.summary)
    notes = {"student": options.student, "layers": built.layers}
    shrunk = _ShrunkModel(built.model, built.tokenizer, built.layers or (), notes)
    return _with_vocabulary(shrunk, plan_vocabulary(source, options), options.seed)


def _with_vocabulary(shrunk: _ShrunkModel, change: "VocabularyChange | None", seed: int) -> _ShrunkModel:
    """Return the model with its new vocabulary."""
    if change is None:
        return shrunk
    model, difference = change.apply(shrunk.model, seed)
    for step in change.steps:
        note(step)
    differences = {"differences": shrunk.notes.get("differences", {}) | {"vocabulary": difference}}
    return _ShrunkModel(model, change.tokenizer, shrunk.layers, shrunk.notes | dict(change.facts) | differences)


def _cut(options: Options, source: Checkpoint) -> _ShrunkModel:
    from biosqueeze.models.depth import keep_layers
    from biosqueeze.models.load import load_model, load_tokenizer
    from biosqueeze.models.width import narrow
    from biosqueeze.vocabularies.change import plan_vocabulary

    loaded = load_model(source, seed=options.seed)
    cut = _kept_shape(options, loaded.model.config)
    if loaded.missing:
        note(f"{source.name} lacks {', '.join(loaded.missing)}: random weights, seed {options.seed}")
    whole = _ShrunkModel(loaded.model, load_tokenizer(source), cut.layers, {"layers": cut.layers})
    start = _with_vocabulary(whole, plan_vocabulary(source, options), options.seed)
    model, differences = start.model, start.notes.get("differences", {})
    if cut.layers is not None:
        model, differences["layers"] = keep_layers(model, cut.layers)
    if not cut.widths.empty:
        narrowed = narrow(model, cut.widths)
        model, differences = narrowed.model, differences | narrowed.differences
    for step in cut.steps:
        note(step)
    note(f"largest difference from the original with the rest masked: {max(differences.values()):.1e}")
    return replace(start, model=model, notes=start.notes | {"differences": differences})
