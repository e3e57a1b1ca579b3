"""Give the outputs of a fine-tuned checkpoint other names, and remove those that are no label."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

from biosqueeze.checkpoint import Checkpoint, open_checkpoint
from biosqueeze.checkpoint_files import ARTEFACTS
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.finetuning.label_names import REMOVED, tag_fault
from biosqueeze.manifest import TaskRecord
from biosqueeze.models.custom_heads.files import label_count, task_head_in
from biosqueeze.options import CheckpointArgument, Outcome, Plan, Purpose, Summary, Syntax, WritingOptions
from biosqueeze.output import StageRecord, check_output, derive_out, inputs_of, open_output
from biosqueeze.progress import note, warn
from biosqueeze.summaries import size_of
from biosqueeze.tasks.encoding.tag_schemes import scheme_of, split_tag

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
    can be read. The weights of the outputs that remain are unchanged; where some are removed, graphs are left out.
    """

    NEEDS_ONE_OF: ClassVar[tuple[str, ...]] = ("labels", "multi_label")

    checkpoint: CheckpointArgument
    labels: Annotated[
        str | None,
        "Names of all outputs in the order of id2label in config.json; - removes an output. Those of a tagger are O, "
        "B-TYPE, I-TYPE, ...",
        Syntax("NAME,NAME,...", is_list=True),
    ] = None
    multi_label: Annotated[
        bool, "Mark a classifier as one that gives a text any number of labels (problem_type in config.json)."
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
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The old and the new name of the outputs that remain."""
        return tuple(zip((self.old[number] for number in self.kept), self.new, strict=True))

    @property
    def changes(self) -> tuple[str, ...]:
        """What is done to the outputs."""
        pairs = [(old, new) for old, new in zip(self.old, self.given, strict=True) if old != new]
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
    from biosqueeze.backends.onnx_export import copy_stock
    from biosqueeze.models.relabelling import remove_outputs, write_labels

    source = open_checkpoint(options.checkpoint)
    names = _names(options, source)
    with open_output(_out(options, source), inputs_of(options, source), force=options.force) as output:
        if len(names.new) < len(names.old):
            remove_outputs(source, output.path, names.kept)
        else:
            copy_stock(source, output.path)
        write_labels(output.path, names.new, is_multi_label=options.multi_label)
        record = StageRecord(stage="relabel", parent=source, options=options, task=_task(options, source, names))
        written = output.finish(record)
    for step in _steps(options, names):
        note(step)
    if len(names.new) < len(names.old) and any((source.path / folder).is_dir() for folder in ARTEFACTS):
        warn(f"the graphs of {source.name} have the outputs that were removed, and are left out; export it again")
    summary = Summary(size=size_of(written), next_words=("predict", str(written.path), *_input_words(source)))
    return Outcome(written.path, {"labels": list(names.new)}, summary=summary)


def _input_words(source: Checkpoint) -> tuple[str, ...]:
    """Return the words of `predict` that name its input: one text, where the task reads single texts."""
    from biosqueeze.distillation.models import ON_PLAIN_TEXT

    if source.task:
        return ("--text", "TEXT") if source.task.name in ON_PLAIN_TEXT else ("RECORDS.jsonl",)
    is_tagger = task_head_in(source) == "token-classification"
    return (*(() if is_tagger else ("--task", "classification")), "--text", "TEXT")


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
    old = source.labels or tuple(f"LABEL_{number}" for number in range(label_count(source)))
    if head not in _HEADS or len(old) == 1:
        raise SqueezeError(f"{source.name} has no classifier or tagger, and so no labels")
    kind = source.task.name if source.task else None
    if options.multi_label and (head == "token-classification" or kind not in (None, "classification")):
        raise UsageError(f"--multi-label: {source.name} is no classifier of texts, but one for {kind or 'tags'}")
    if options.labels is None:
        return _Names(old, old)
    names = _Names(old, tuple(name.strip() for name in options.labels.split(",")))
    fault = _fault(names, is_tagger=head == "token-classification", custom_head=source.custom_head)
    if fault:
        raise UsageError(f"--labels {options.labels}: {fault}")
    return names


def _fault(names: _Names, *, is_tagger: bool, custom_head: str | None) -> str:
    """Return what is wrong with the names, "" for nothing."""
    given, outputs = len(names.given), len(names.old)
    if given != outputs:
        return f"{given} names, and there are {outputs} outputs: {', '.join(names.old)}; - removes one"
    unread = tag_fault(names.new) if is_tagger else ""
    faults = {
        "a name is empty; - removes an output": "" in names.given,
        "two names are equal": len(set(names.new)) < len(names.new),
        "at least two outputs must remain": len(names.new) < 2,
        f"no output of a {custom_head} head can be removed": custom_head and len(names.new) < outputs,
        "LABEL_0, ... are no names": any(name.startswith("LABEL_") for name in names.new),
        f"{unread}; entities are read from tags, such as O, B-Disease and I-Disease": unread,
        "these are its names already": not names.changes,
    }
    return next((fault for fault, holds in faults.items() if holds), "")


def _task(options: Options, source: Checkpoint, names: _Names) -> TaskRecord | None:
    """Return the record of the task with the new names, where there is a record.

    Data with labels that no output has any more are not recorded, because other commands would read them by default.
    """
    from biosqueeze.data.output_types import MULTI  # imports NumPy

    if source.task is None:
        return None
    scheme, formulation = source.task.scheme, dict(source.task.formulation)
    is_tagger = task_head_in(source) == "token-classification"
    renamed = {_class_of(old, is_tagger): _class_of(new, is_tagger) for old, new in names.pairs}
    if options.multi_label:
        scheme = MULTI.name
    if is_tagger:
        scheme = scheme_of(names.new)
        if options.labels and formulation.pop("merge_types", None):
            formulation.pop("types", None)  # they are of the data, and the tags have no types
        elif options.labels and "types" in formulation:
            formulation["types"] = [renamed[kind] for kind in formulation["types"] if kind in renamed]
    elif source.task.name == "relation":
        formulation["negative"] = _negative(formulation.get("negative"), names, renamed)
    formulation = {name: value for name, value in formulation.items() if value not in (None, [])}
    data = source.task.data if set(names.old) <= set(names.new) else None
    metric = _metric(source.task.metric, {_class_of(old, is_tagger) for old in names.old}, renamed)
    if options.multi_label and metric == "micro_f1":
        metric = "f1"  # the name of the same average over sets of labels
    return replace(source.task, data=data, labels=names.new, scheme=scheme, metric=metric, formulation=formulation)


def _negative(recorded: str | None, names: _Names, renamed: Mapping[str, str]) -> str | None:
    """Return the new name of the label for no relation; None where it needs no record, or was removed."""
    from biosqueeze.tasks.readers.relations import usual_negatives  # imports NumPy

    usual, still_usual = usual_negatives(names.old), usual_negatives(names.new)
    new = renamed.get(recorded or (usual[0] if len(usual) == 1 else ""))
    return new if recorded or still_usual != [new] else None


def _class_of(label: str, is_tagger: bool) -> str:
    """Return the type of a tag, or the label of a text."""
    return split_tag(label)[1] if is_tagger else label


def _metric(metric: str | None, old: Collection[str], renamed: Mapping[str, str]) -> str | None:
    """Return the metric, that of a single class by its new name; None, the task's own, where the class was removed."""
    measure, _, name = (metric or "").partition("-")
    if not name or name not in old:
        return metric
    return f"{measure}-{renamed[name]}" if name in renamed else None
