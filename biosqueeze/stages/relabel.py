"""Give the outputs of a fine-tuned checkpoint other names, and remove those that are no label."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

from biosqueeze.checkpoint import Checkpoint, open_checkpoint
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.finetuning.label_names import REMOVED, tag_fault
from biosqueeze.manifest import TaskRecord
from biosqueeze.models.custom_heads.files import check_custom_head, copy_head, label_count, task_head_in
from biosqueeze.options import CheckpointArgument, Outcome, Plan, Purpose, Summary, Syntax, WritingOptions
from biosqueeze.output import StageRecord, check_output, derive_out, inputs_of, open_output
from biosqueeze.progress import note
from biosqueeze.sentence_layout import copy_sentence_layout
from biosqueeze.summaries import size_of
from biosqueeze.tasks.encoding.tag_schemes import scheme_of

PURPOSE = Purpose.TRAIN
EXAMPLES = (
    (
        "Name the labels of a published tagger that calls them LABEL_0, ...",
        "biosqueeze relabel OWNER/ner-model --labels O,B-Disease,I-Disease",
    ),
    (
        "Remove the outputs X, [CLS] and [SEP] of an old BioBERT tagger",
        "biosqueeze relabel biobert-ner --labels O,B-Disease,I-Disease,-,-,-",
    ),
    ("Say that a classifier gives several labels to a text", "biosqueeze relabel hoc-model --multi-label"),
)
_HEADS = ("token-classification", "sequence-classification")


@dataclass(frozen=True, kw_only=True)
class Options(WritingOptions):
    """Name the labels of a fine-tuned checkpoint.

    Published taggers and classifiers often have LABEL_0, LABEL_1, ... in config.json, or labels from which no entities
    can be read. The weights of the outputs that remain are unchanged. ONNX graphs are left out.
    """

    NEEDS_ONE_OF: ClassVar[tuple[str, ...]] = ("labels", "multi_label")

    checkpoint: CheckpointArgument
    labels: Annotated[
        str | None,
        "Names of all outputs in their order; - removes an output. Those of a tagger are O, B-TYPE, I-TYPE, ...",
        Syntax("NAME,NAME,...", is_list=True),
    ] = None
    multi_label: Annotated[
        bool, "The outputs of a classifier are independent: a text has any number of labels (problem_type)."
    ] = False


@dataclass(frozen=True)
class _Names:
    old: tuple[str, ...]
    given: tuple[str, ...]  # a new name, or REMOVED, for each of the old ones

    @property
    def kept(self) -> tuple[int, ...]:
        return tuple(number for number, name in enumerate(self.given) if name != REMOVED)

    @property
    def new(self) -> tuple[str, ...]:
        return tuple(self.given[number] for number in self.kept)

    @property
    def changes(self) -> tuple[str, ...]:
        """What is done to the outputs."""
        pairs = zip(self.old, self.given, strict=True)
        return tuple(f"remove {old}" if new == REMOVED else f"{old} -> {new}" for old, new in pairs)


def plan(options: Options) -> Plan:
    """Return what would be named or removed; read config.json."""
    source = open_checkpoint(options.checkpoint, weights=False)
    names = _names(options, source)
    out = check_output(_out(options, source), inputs_of(options, source), force=options.force)
    return Plan(out=out, steps=_steps(options, names))


def run(options: Options) -> Outcome:
    """Write the checkpoint with its new labels.

    Raises:
        UsageError: these are no names for its outputs.
        SqueezeError: it has no labels.
    """
    from biosqueeze.data.output_types import MULTI
    from biosqueeze.models.loading.load import load_model, load_tokenizer
    from biosqueeze.models.relabelling import with_outputs

    source = open_checkpoint(options.checkpoint)
    names = _names(options, source)
    with open_output(_out(options, source), inputs_of(options, source), force=options.force) as output:
        problem_type = MULTI.problem_type if options.multi_label else None
        with_outputs(load_model(source).model, names.kept, names.new, problem_type).save_pretrained(output.path)
        load_tokenizer(source).save_pretrained(output.path)
        copy_sentence_layout(source.path, output.path)
        copy_head(source, output.path)
        record = StageRecord(stage="relabel", parent=source, options=options, task=_task(options, source, names))
        written = output.finish(record)
    for step in _steps(options, names):
        note(step)
    summary = Summary(size=size_of(written), next_words=("evaluate", str(written.path), "--data", "DIRECTORY"))
    return Outcome(written.path, {"labels": list(names.new)}, summary=summary)


def _steps(options: Options, names: _Names) -> tuple[str, ...]:
    renamed = ("labels: " + ", ".join(names.changes),) if options.labels else ()
    return (*renamed, *(("a text has any number of labels",) if options.multi_label else ()))


def _out(options: Options, source: Checkpoint) -> Path:
    return Path(options.out) if options.out else derive_out(source, "relabelled")


def _names(options: Options, source: Checkpoint) -> _Names:
    """Return the old and the new names of the outputs.

    Raises:
        UsageError: these are no names for its outputs.
        SqueezeError: it has no labels, or a custom head that depends on them.
    """
    head = task_head_in(source)
    check_custom_head(source, "relabel", allowed=("crf",))
    old = source.labels or tuple(f"LABEL_{number}" for number in range(label_count(source)))
    if head not in _HEADS or len(old) == 1:
        raise SqueezeError(f"{source.name} has no classifier or tagger, and so no labels")
    if options.multi_label and head == "token-classification":
        raise UsageError(f"--multi-label: {source.name} is a tagger, which has one tag for each word")
    if options.labels is None:
        return _Names(old, old)
    names = _Names(old, tuple(name.strip() for name in options.labels.split(",")))
    fault = _fault(names, is_tagger=head == "token-classification", has_crf=source.custom_head is not None)
    if fault:
        raise UsageError(f"--labels {options.labels}: {fault}")
    return names


def _fault(names: _Names, *, is_tagger: bool, has_crf: bool) -> str:
    """Return what is wrong with the names, "" for nothing."""
    if len(names.given) != len(names.old):
        given, outputs = len(names.given), len(names.old)
        return f"{given} names, and there are {outputs} outputs: {', '.join(names.old)}; - removes one"
    if "" in names.given:
        return "a name is empty; - removes an output"
    if len(set(names.new)) < len(names.new):
        return "two names are equal"
    if len(names.new) < 2:
        return "at least two outputs must remain"
    if has_crf and len(names.new) < len(names.old):
        return "no output of a CRF can be removed"
    unread = tag_fault(names.new) if is_tagger else ""
    return unread and f"{unread}; entities are read from tags, such as O, B-Disease and I-Disease"


def _task(options: Options, source: Checkpoint, names: _Names) -> TaskRecord | None:
    """Return the record of the task with the new names, where there is a record."""
    from biosqueeze.data.output_types import MULTI  # imports NumPy

    if source.task is None:
        return None
    scheme = MULTI.name if options.multi_label else source.task.scheme
    if task_head_in(source) == "token-classification":
        scheme = scheme_of(names.new)
    return replace(source.task, labels=names.new, scheme=scheme)
