"""Keep some layers, neurons, heads and tokens of a checkpoint, or build a student from it by a preset."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from biosqueeze.budgets.options import BUDGETS, SHAPE, BudgetOptions
from biosqueeze.checkpoint import Checkpoint, open_checkpoint
from biosqueeze.errors import UsageError
from biosqueeze.importance.options import ImportanceOptions
from biosqueeze.model_facts import shape_of
from biosqueeze.models.custom_heads.files import BESIDE_ENCODER, check_custom_head, copy_head
from biosqueeze.models.cuts.gradual import GradualOptions, check_steps, next_layers, next_widths
from biosqueeze.models.cuts.shape_options import ShapeOptions
from biosqueeze.models.named.presets import find_preset
from biosqueeze.options import (
    CheckpointArgument,
    Outcome,
    Plan,
    Purpose,
    Summary,
    WritingOptions,
)
from biosqueeze.output import OutputCheckpoint, StageRecord, check_output, derive_out, inputs_of, open_output
from biosqueeze.progress import note
from biosqueeze.sentence_layout import copy_sentence_layout
from biosqueeze.summaries import next_after_cut, next_after_lost_tokens, next_after_training, size_of
from biosqueeze.vocabularies.options import VocabularyOptions

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

    from biosqueeze.importance.calibration import Calibration
    from biosqueeze.importance.guided_cut import GuidedCut
    from biosqueeze.importance.kept_shape import KeptShape
    from biosqueeze.importance.store import SavedScores
    from biosqueeze.models.cuts.width import Widths
    from biosqueeze.models.loading.load import LoadedModel
    from biosqueeze.vocabularies.change import VocabularyChange

PURPOSE = Purpose.SMALLER
EXAMPLES = (
    ("Keep 6 layers, spread evenly", "biosqueeze shrink dmis-lab/biobert-v1.1 --layers 6"),
    ("Keep half of the neurons and heads too", "biosqueeze shrink teacher --layers 6 --ffn 1536 --heads 6"),
    (
        "Halve the width, choosing and repairing by the task's data",
        "biosqueeze shrink ner-minilm --width 0.5 --calibration NCBI-disease",
    ),
    (
        "Keep the tokens of abstracts and of a task's data",
        "biosqueeze shrink teacher --vocab-keep pubmed --vocab-keep NCBI-disease",
    ),
    ("Cut to 15 million parameters", "biosqueeze shrink ner-minilm --params 15M --calibration NCBI-disease"),
    (
        "Cut to twice, four and eight times the speed on this machine",
        "biosqueeze shrink ner-minilm --family 2,4,8 --backend onnxruntime:int8 --calibration NCBI-disease",
    ),
    ("Make the untrained student of a named shape", "biosqueeze shrink dmis-lab/biobert-v1.1 --student tiny"),
)


@dataclass(frozen=True, kw_only=True)
class Options(BudgetOptions, GradualOptions, ImportanceOptions, ShapeOptions, VocabularyOptions, WritingOptions):
    """Remove layers, heads, neurons or tokens, or make a student.

    The kept weights and the head are copied unchanged, unless they are repaired, heads or embeddings get narrower (they
    are rotated), or a ModernBERT loses its first layer (a norm moves into the next one's weights); stock transformers
    loads the result. Removing costs accuracy: distil or fine-tune afterwards. A text of kept tokens alone, none of
    them the unknown one, is encoded as before, so --vocab-keep costs none there.
    """

    NEEDS_ONE_OF: ClassVar[tuple[str, ...]] = (*SHAPE, *BUDGETS, "vocab_keep", "tokenizer")

    checkpoint: CheckpointArgument

    @property
    def narrows(self) -> bool:
        """Whether neurons, heads or hidden dimensions are chosen."""
        return self.has_budget or any(getattr(self, name) is not None for name in ("width", "ffn", "heads", "hidden"))

    @property
    def cuts_vocabulary_alone(self) -> bool:
        """Whether the outputs on texts of kept tokens are those of the original, so that nothing needs a training."""
        others = (*SHAPE, "tokenizer")
        return not self.has_budget and all(getattr(self, name) is None for name in others)


@dataclass(frozen=True)
class _ShrunkModel:
    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerFast"
    layers: tuple[int, ...] | None  # see output.StageRecord
    notes: dict[str, Any]
    scores: "SavedScores | None" = None
    heads: tuple[tuple[int, ...], ...] | None = None  # see output.StageRecord
    before: int | None = None  # parameters of the loaded model; None for those by config.json


def plan(options: Options) -> Plan:
    """Return what would be cut; read config.json, the tokenizer and the text of --vocab-keep, and no weights."""
    from biosqueeze.budgets.search import open_search
    from biosqueeze.importance.guide import with_calibration
    from biosqueeze.models.count import count_parts, parameters_of
    from biosqueeze.models.families import family_of
    from biosqueeze.models.loading.detection import detect_head
    from biosqueeze.models.loading.load import load_config
    from biosqueeze.models.named.students import student_architecture
    from biosqueeze.models.tokenizers.text_tokenizer import check_tokenizer_files
    from biosqueeze.vocabularies.change import describe_savings, plan_vocabulary

    source = open_checkpoint(options.checkpoint, weights=False)
    config = load_config(source)
    check_custom_head(source, "shrink", allowed=BESIDE_ENCODER)
    check_tokenizer_files(source)
    options = with_calibration(options, source, config, narrows=options.narrows)
    out = check_output(_out(options, source), inputs_of(options, source), force=options.force)
    if options.has_budget:
        search = open_search(options, source)
        steps = (*(search.vocabulary.steps if search.vocabulary else ()), *search.plan())
        return Plan(out=out, steps=steps, parameters_before=parameters_of(source))
    steps, changed = _plan_student(options, source) if options.student else _plan_cut(options, source, config)
    vocabulary = plan_vocabulary(source, options, changed)
    head = detect_head(source, config)
    architecture = student_architecture(changed, config, head)
    if vocabulary is None:
        after = count_parts(changed, architecture)
    else:
        before = count_parts(config, family_of(config).architecture(head))
        after = count_parts(vocabulary.new_config(changed), architecture)
        steps = (*vocabulary.steps, *steps, describe_savings(before, after))
    return Plan(out=out, steps=steps, parameters_before=parameters_of(source), parameters_after=after["total"])


def _plan_student(options: Options, source: Checkpoint) -> tuple[tuple[str, ...], "PreTrainedConfig"]:
    from biosqueeze.models.loading.load import load_config
    from biosqueeze.models.named.students import kept_family, plan_student

    preset, config = find_preset(str(options.student)), load_config(source)
    steps = (f"make the student {preset.name} of {source.name}: {preset.summary}{kept_family(config, preset)}",)
    return steps, plan_student(config, preset)


def _plan_cut(
    options: Options, source: Checkpoint, config: "PreTrainedConfig"
) -> tuple[tuple[str, ...], "PreTrainedConfig"]:
    from biosqueeze.models.attention_pattern import warn_irregular
    from biosqueeze.models.cuts.depth import shallow_config
    from biosqueeze.models.cuts.embedding_size import embedding_config
    from biosqueeze.models.cuts.width import narrowed_config

    cut = _kept_shape(options, source, config)
    smaller = embedding_config(config, options.embedding)
    changed, layers = narrowed_config(smaller, cut.widths), cut.layer_numbers()
    steps = (*cut.guide.steps, *cut.choice, *cut.steps)
    if layers is None:
        return steps, changed
    if not isinstance(cut.layers, int):
        warn_irregular(config, layers)
    return steps, shallow_config(changed, layers)


def _kept_shape(options: Options, source: Checkpoint, config: "PreTrainedConfig") -> "KeptShape":
    from biosqueeze.importance.guide import Guide, embedding_request, is_guided, plan_guide
    from biosqueeze.importance.kept_shape import described
    from biosqueeze.models.cuts.depth import parse_layers_of
    from biosqueeze.models.cuts.embedding_size import embedding_config, embedding_step

    former, config = config, embedding_config(config, options.embedding)
    total = config.num_hidden_layers
    kept = next_layers(config, options.layers, options.steps_of)
    layers = parse_layers_of(config, kept) if kept is not None else None
    widths, rounding = _widths(options, config)
    keeps_layers = layers is None or len(layers) == total
    if keeps_layers and widths.empty and options.embedding is None and not options.changes_vocabulary:
        raise UsageError(
            f"the model has this shape already, so nothing would be cut; it has {shape_of(source.config).summary}"
        )
    embeds_alone = options.embedding is not None and widths.empty
    if keeps_layers:
        kept = None
    guided = not embeds_alone or is_guided(options, config, kept)
    guide = plan_guide(options, source, config, widths, kept) if guided else Guide()
    shape = described(guide, config, kept, widths, rounding)
    if options.embedding is None:
        return shape
    request = embedding_request(options, source)
    weighted = f"the tokens of {request.source} count most" if request else "every token counts alike"
    step = f"{embedding_step(former, config)}; {weighted}"
    return replace(shape, steps=(step, *shape.steps), embedding_data=request)


def _widths(options: Options, config: "PreTrainedConfig") -> tuple["Widths", str]:
    """Return the widths to keep, and how --width was rounded."""
    from biosqueeze.models.cuts.shares import check_share, kernel_multiple, widths_of_share
    from biosqueeze.models.cuts.width import choose_widths

    if options.width is None:
        target = choose_widths(config, options.ffn, options.heads, options.hidden)
        check_steps(config, options.layers, target, options.steps_of)
        return next_widths(config, target, options.steps_of), ""
    choose_widths(config, 1, None, None)  # raises for a family that cannot be narrowed
    check_share(config, options.width)
    ffn, heads = widths_of_share(config, options.width)
    multiple = kernel_multiple(ffn)
    rounding = f", a multiple of {multiple} for int8 kernels" if multiple > 1 else ""
    return choose_widths(config, ffn, heads, None), rounding


def _out(options: Options, source: Checkpoint) -> Path:
    if options.out:
        return Path(options.out)
    if options.student or options.has_budget:
        name = options.student or options.budget_name
        return derive_out(source, name + ("-vocab" if options.changes_vocabulary else ""))
    letters = {"l": options.layers, "w": options.width, "f": options.ffn, "h": options.heads, "d": options.hidden}
    letters |= {"e": options.embedding, "s": options.steps_of}
    words = [f"{letter}{str(value).replace(',', '_')}" for letter, value in letters.items() if value is not None]
    return derive_out(source, "-".join([*words, *(["vocab"] if options.changes_vocabulary else [])]))


def run(options: Options) -> Outcome:
    """Build the smaller model, compare it with the original, and write it."""
    from biosqueeze.importance.guide import with_calibration
    from biosqueeze.models.loading.load import load_config
    from biosqueeze.vocabularies.change import loses_tokens

    source = open_checkpoint(options.checkpoint)
    check_custom_head(source, "shrink", allowed=BESIDE_ENCODER)
    options = with_calibration(options, source, load_config(source), narrows=options.narrows)
    out = _out(options, source)
    if options.family:
        return _run_family(options, source, out)
    with open_output(out, inputs_of(options, source), force=options.force) as output:
        checkpoint, facts = _write(options, source, _shrunk(options, source), output)
    if loses_tokens(facts):
        next_words = next_after_lost_tokens(checkpoint, source)
    elif options.cuts_vocabulary_alone:
        next_words = next_after_training(checkpoint)
    else:
        next_words = next_after_cut(checkpoint, source)
    return Outcome(checkpoint.path, facts, summary=Summary(size=size_of(checkpoint), next_words=next_words))


def _run_family(options: Options, source: Checkpoint, out: Path) -> Outcome:
    """Write one checkpoint for every speed-up into a directory, whole or not at all."""
    from biosqueeze.budgets.family import family_manifest

    members = {}
    with open_output(out, inputs_of(options, source), force=options.force) as output:
        for name, shrunk in _cuts_to_budgets(options, source):
            member = OutputCheckpoint(output.path / f"{name}.partial", output.path / name)
            member.path.mkdir()
            members[name] = _write(options, source, shrunk, member)[1]
        output.finish_without_model(family_manifest(output.path, source, options, members))
    paths = [str(out / name) for name in members]
    return Outcome(out, {"family": members}, summary=Summary(next_words=("bench", source.name, *paths)))


def _write(
    options: Options, source: Checkpoint, shrunk: _ShrunkModel, output: OutputCheckpoint
) -> tuple[Checkpoint, dict[str, Any]]:
    """Return the checkpoint that was written, and what is said of it."""
    from biosqueeze.importance.store import save_scores
    from biosqueeze.models.count import count_model, parameters_of

    before, after = shrunk.before or parameters_of(source), count_model(shrunk.model)["total"]
    note(f"parameters: {before:,} -> {after:,} ({after / before:.0%})")
    shrunk.model.save_pretrained(output.path)
    shrunk.tokenizer.save_pretrained(output.path)
    copy_sentence_layout(source.path, output.path)
    if shrunk.scores:
        save_scores(output.path, shrunk.scores)
    copy_head(source, output.path)  # none of these depends on the shape of the encoder
    layers, heads, notes = shrunk.layers, shrunk.heads, shrunk.notes
    record = StageRecord(stage="shrink", parent=source, options=options, notes=notes, layers=layers, heads=heads)
    return output.finish(record), {"parameters_before": before, "parameters_after": after, **shrunk.notes}


def _shrunk(options: Options, source: Checkpoint) -> _ShrunkModel:
    if options.student:
        return _build_student(options, source)
    if options.has_budget:
        return next(cut for _, cut in _cuts_to_budgets(options, source))
    return _cut(options, source)


def _build_student(options: Options, source: Checkpoint) -> _ShrunkModel:
    from biosqueeze.models.named.students import build_student
    from biosqueeze.vocabularies.change import plan_vocabulary

    built = build_student(source, str(options.student), options.seed)
    note(built.summary)
    notes = {"student": options.student, "layers": built.layers}
    shrunk = _ShrunkModel(built.model, built.tokenizer, built.layers or (), notes)
    return _with_vocabulary(shrunk, plan_vocabulary(source, options, built.model.config), options.seed)


def _with_vocabulary(shrunk: _ShrunkModel, change: "VocabularyChange | None", seed: int) -> _ShrunkModel:
    """Return the model with its new vocabulary."""
    if change is None:
        return shrunk
    model, difference = change.apply(shrunk.model, seed)
    _note_all(change.steps)
    differences = {"differences": shrunk.notes.get("differences", {}) | {"vocabulary": difference}}
    notes = shrunk.notes | dict(change.facts) | differences
    return replace(shrunk, model=model, tokenizer=change.tokenizer_for(shrunk.tokenizer), notes=notes)


def _note_all(steps: Sequence[str]) -> None:
    for step in steps:
        note(step)


def _cut(options: Options, source: Checkpoint) -> _ShrunkModel:
    from biosqueeze.importance.calibration import read_calibration
    from biosqueeze.importance.guided_cut import GuidedCut
    from biosqueeze.models.loading.load import load_model
    from biosqueeze.vocabularies.change import plan_vocabulary

    loaded = load_model(source, seed=options.seed)
    shape = _kept_shape(options, source, loaded.model.config)
    vocabulary = plan_vocabulary(source, options, loaded.model.config)
    start = _with_vocabulary(_whole(source, loaded, options.seed), vocabulary, options.seed)
    request = shape.guide.request or shape.embedding_data
    calibration = read_calibration(request, source, start.model, start.tokenizer)
    start = _with_embedding(start, options, calibration if shape.embedding_data else None)
    guided = GuidedCut(shape.guide, calibration, start.model)
    _note_all(guided.guide.steps)
    return _cut_to(shape, guided, start)


def _with_embedding(start: _ShrunkModel, options: Options, text: "Calibration | None") -> _ShrunkModel:
    """Return the model with smaller embeddings, if they are cut, for the tokens of a text."""
    from biosqueeze.models.cuts.embedding_size import keep_embedding_size

    if options.embedding is None:
        return start
    counts = text.token_counts(start.model.config.vocab_size) if text else None
    cut = keep_embedding_size(start.model, options.embedding, counts, fits=options.repair != "none")
    note(f"{cut.explained:.1%} of the variance of the projected embeddings is kept")
    return replace(start, model=cut.model, notes=start.notes | {"embedding_variance": round(cut.explained, 4)})


def _cuts_to_budgets(options: Options, source: Checkpoint) -> Iterator[tuple[str, _ShrunkModel]]:
    """Yield the cut model of every budget by its name; all are cut from the original."""
    from biosqueeze.budgets.search import open_search
    from biosqueeze.importance.calibration import read_calibration
    from biosqueeze.importance.guided_cut import GuidedCut
    from biosqueeze.importance.kept_shape import described
    from biosqueeze.models.loading.load import load_config, load_model

    loaded, config = load_model(source, seed=options.seed), load_config(source)
    config.tie_word_embeddings = loaded.model.config.tie_word_embeddings  # see `load_model`
    search = open_search(options, source, config)
    start = _with_vocabulary(_whole(source, loaded, options.seed), search.vocabulary, options.seed)
    search = search.timed()  # minutes, so after the weights were checked
    calibration = read_calibration(search.guide.request, source, start.model, start.tokenizer)
    guided = GuidedCut(search.guide, calibration, start.model)
    search = replace(search, guide=guided.guide)
    _note_all(search.guide.steps)
    for choice in search.choose(guided.scores):
        guided.restart()
        shape = described(search.guide, start.model.config, choice.layers, choice.widths)
        shrunk = _cut_to(shape, guided, start)
        yield choice.budget.name, replace(shrunk, notes=shrunk.notes | {"budget": choice.facts})


def _whole(source: Checkpoint, loaded: "LoadedModel", seed: int) -> _ShrunkModel:
    """Return the model as it was loaded."""
    from biosqueeze.models.count import count_model
    from biosqueeze.models.loading.load import load_tokenizer
    from biosqueeze.models.verify import check_finite_parameters

    check_finite_parameters(loaded.model, source.name)
    if loaded.missing:
        note(f"{source.name} lacks {', '.join(loaded.missing)}: random weights, seed {seed}")
    before = count_model(loaded.model)["total"]
    return _ShrunkModel(loaded.model, load_tokenizer(source), None, {"layers": None}, before=before)


def _cut_to(shape: "KeptShape", guided: "GuidedCut", start: _ShrunkModel) -> _ShrunkModel:
    """Return a model, with its new vocabulary, cut to a shape."""
    if shape.layers is not None:
        guided.keep_layers(shape.layers)
    if not shape.widths.empty:
        guided.narrow(shape.widths)
    cut = guided.cut
    _note_all(shape.steps)
    differences = start.notes.get("differences", {}) | cut.differences
    if differences:  # a smaller embedding has no reference
        note(f"largest difference from the original with the rest masked: {max(differences.values()):.1e}")
    notes = start.notes | {"layers": cut.layers, "differences": differences}
    notes |= guided.facts()
    if shape.embedding_data:
        notes["embedding_data"] = shape.embedding_data.source
    total = start.model.config.num_hidden_layers
    scores = guided.saved_scores(total)
    return replace(start, model=cut.model, layers=cut.layers, heads=cut.heads, notes=notes, scores=scores)
