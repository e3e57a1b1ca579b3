"""Distil teachers into a student: task-agnostic on plain text, or task-specific with a fine-tuned teacher."""

import shlex
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from biosqueeze import registry
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.data.text.corpus import check_field
from biosqueeze.distillation.inputs import DistillationInputs, open_inputs
from biosqueeze.distillation.losses.presets import STUDENT_LOSSES, TEXT_PAIRS, formula, parse_losses
from biosqueeze.distillation.options import DistillationOptions, counted_weights
from biosqueeze.distillation.request import (
    AugmentationSettings,
    CacheSettings,
    DataSettings,
    DistillationRequest,
    LossSettings,
    ModelSettings,
)
from biosqueeze.errors import UsageError
from biosqueeze.manifest import TaskRecord
from biosqueeze.models.custom_heads.files import has_cosine
from biosqueeze.models.named.presets import PRESETS
from biosqueeze.options import (
    Argument,
    Common,
    Group,
    OnDisk,
    Outcome,
    Plan,
    Purpose,
    Requires,
    Suggests,
    Syntax,
    flag_of,
)
from biosqueeze.output import StageRecord, check_output, derive_out, inputs_of, open_output
from biosqueeze.progress import duration, quietly
from biosqueeze.sentence_layout import copy_sentence_layout
from biosqueeze.summaries import trained_summary
from biosqueeze.system import processes
from biosqueeze.training.options import PLATEAU
from biosqueeze.training.resuming.finished import recorded_hashes, resume_where_saved, take_over

if TYPE_CHECKING:
    from biosqueeze.distillation.pipeline import DistillationResult


PURPOSE = Purpose.SMALLER
EXAMPLES = (
    (
        "Distil a pretrained encoder into a preset student, on plain text",
        "biosqueeze distill --teacher dmis-lab/biobert-v1.1 --student tiny --corpus pubmed.txt.gz",
    ),
    (
        "Distil a fine-tuned teacher, on its labelled data and on unlabelled text",
        "biosqueeze distill student --teacher ner-teacher --data NCBI-disease --corpus pubmed.txt.gz",
    ),
    (
        "Shrink and distil in a pipe, with losses of your choice",
        "biosqueeze shrink teacher --layers 6 | biosqueeze distill - --teacher teacher --data NCBI-disease "
        "--loss kl --loss hidden=0.5",
    ),
    (
        "Average the soft labels of two teachers, and store them for later students",
        "biosqueeze distill --student distil --teacher teacher-a --teacher teacher-b --data NCBI-disease "
        "--loss kl --cache-teacher teacher-cache",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Options(DistillationOptions):
    """Train a small student on the outputs of a larger teacher.

    A pretrained teacher is distilled on plain text (--corpus): masked language modelling, the teacher's distribution
    over masked tokens, and its hidden states. A fine-tuned teacher is distilled on its task: soft labels and attention
    on labelled data (--data), on unlabelled text (--corpus), or on both. --loss selects the losses. With --data it is
    trained until dev scores stop rising, unless --epochs, --steps or --schedule is given.
    """

    checkpoint: Annotated[
        str | None,
        "The student: directory, Hub id, or - for the path on standard input; or give --student.",
        Argument(unless="student"),
        OnDisk(may_be_name=True),
    ] = None
    teacher: Annotated[
        tuple[str, ...],
        "The teacher: directory, Hub id, or demo:minilm. Repeatable: soft labels are averaged, hidden states are those "
        "of the first.",
        OnDisk(may_be_name=True),
        Common(),
        Group.MODELS,
    ]
    student: Annotated[
        str | None,
        "Make the student from the teacher by a preset; `biosqueeze students` lists the presets. On plain text distil, "
        "compact, tiny and biolm-base select the losses of their paper.",
        Syntax("PRESET"),
        Suggests(lambda: PRESETS),
        Common(),
        Group.MODELS,
    ] = None
    corpus: Annotated[
        tuple[str, ...],
        "Unlabelled text (.txt, .jsonl, .gz), a directory of it, or hub:NAME[:FIELD], repeatable. For relation, nli, "
        "qa, and similarity of texts that are encoded together: JSON lines with the fields of the task.",
        OnDisk(),
        Common(),
        Group.DATA,
    ] = ()
    data: Annotated[
        str | None,
        "Labelled data of the teacher's task. The student with the best score on its dev split is kept.",
        OnDisk(),
        Common(),
        Group.DATA,
    ] = None
    field: Annotated[str, "Field of a JSONL corpus that holds the text.", Requires("corpus"), Group.DATA] = "text"
    task: Annotated[
        str | None,
        "Task kind of a teacher whose manifest has none; see `biosqueeze tasks`.",
        Suggests(lambda: registry.names("tasks")),
        Group.DATA,
    ] = None
    lr: Annotated[float, "Peak learning rate; it rises linearly from 0 and falls as --schedule says."] = 5e-4
    batch_size: Annotated[int, "Sequences in a batch, per process."] = 32
    max_length: Annotated[
        int,
        "Tokens in a sequence; longer inputs are split into windows (text, ner, pico, qa) or cut. Default on a task: "
        "as in the teacher's fine-tuning.",
    ] = 128


def _open_inputs(options: Options, *, weights: bool = True) -> DistillationInputs:
    """Open the checkpoints, and check the options that depend on the kind of the teachers."""
    from biosqueeze.data.text.corpus import corpus_files

    inputs = open_inputs(options.teacher, options.checkpoint, weights=weights)
    if inputs.has_task:
        _check_task(options, inputs.teacher)
    else:
        _check_plain(options, inputs.teacher)
    for source in options.corpus:
        corpus_files(source)
    parse_losses(options.loss, inputs.kind)
    _teacher_weights(options)
    return inputs


def _teacher_weights(options: Options) -> tuple[float, ...]:
    """Return the weight of each teacher: --teacher-weights, or 1 for all."""
    count = len(options.teacher)
    weights = counted_weights("--teacher-weights", options.teacher_weights, count, "--teacher")
    if weights and count == 1:
        raise UsageError("--teacher-weights has no effect with one --teacher; leave it out")
    return weights or (1.0,) * count


def _output(options: Options, inputs: DistillationInputs) -> Path:
    """Return the output directory: --out, or a name derived from the input."""
    suffix = "distilled" if inputs.student else str(options.student)
    return Path(options.out) if options.out else derive_out(inputs.parent, suffix)


def _check_plain(options: Options, teacher: Checkpoint) -> None:
    """Check that no option of a task is given with a plain encoder as the teacher."""
    for name in ("data", "task", "column", "types", "negative"):
        if getattr(options, name):
            raise UsageError(
                f"--{name} needs a teacher that was fine-tuned on it, and {teacher.name} has no task head; "
                f"first: biosqueeze finetune {teacher.quoted_name} --data {shlex.quote(options.data or 'DIRECTORY')}"
            )


def _check_task(options: Options, teacher: Checkpoint) -> None:
    """Check that a fine-tuned teacher gets data, and no option of masked text."""
    if not options.data and not options.corpus:
        raise UsageError(
            f"{teacher.name} is fine-tuned on a task: give its labelled data with --data, text with --corpus, or both"
        )
    for name in ("maskings", "mask_rate", "mask_unit", "documents"):
        if options.is_given(name):
            raise UsageError(
                f"{flag_of(name)} is for masked text, and {teacher.name} is a teacher with a task; leave it out"
            )
    if options.cache_teacher and has_cosine(teacher):
        raise UsageError(
            f"--cache-teacher stores outputs by sequence, and {teacher.name} reads two texts in each example; leave it "
            "out"
        )
    if options.fit_head:
        raise UsageError(
            f"--fit-head is for the masked-language-model head of a plain encoder, and {teacher.name} is fine-tuned on "
            "a task; leave it out"
        )


def plan(options: Options) -> Plan:
    """Describe the distillation; read configs and no weights."""
    from biosqueeze.distillation.losses.config import DEFAULT_HEAD_STEPS
    from biosqueeze.distillation.preflight import check_request
    from biosqueeze.models.count import parameters_of
    from biosqueeze.models.tokenizers.text_tokenizer import check_tokenizer_files

    inputs = _open_inputs(options, weights=False)
    options = _with_task_defaults(options, inputs)
    request = _request(options, inputs)
    read = inputs_of(options, *request.models.checkpoints)
    out = check_output(_output(options, inputs), read, force=options.force, resume=options.resume is True)
    checked = check_request(request)
    losses, training = checked.losses, checked.training
    for checkpoint in request.models.checkpoints:
        check_tokenizer_files(checkpoint)
    time = _longest(options.most_steps, request) if training.schedule == PLATEAU and not options.hours else ""
    sources = [*options.corpus, *([options.data] if options.data else [])] or ["the generated sample"]
    augmented = f" ({options.augment} augmented copies of each labelled example)" if options.augment else ""
    names = " and ".join(teacher.name for teacher in inputs.teachers)
    head_steps = options.fit_head or f"at most {DEFAULT_HEAD_STEPS:,}"
    fitting = (f"first fit the masked-language-model head that {names} lacks: {head_steps} steps",)
    return Plan(
        out=out,
        steps=(
            *(fitting if losses.fits_heads else ()),
            f"distil {names} into {options.checkpoint or options.student} ({inputs.kind}: "
            f"{formula(losses.weights)}, temperature {losses.temperature:g})",
            f"train on {', '.join(sources)}{augmented}: {training.length}{time}, lr {options.lr:g}",
        ),
        parameters_before=parameters_of(inputs.teacher),
        parameters_after=checked.parameters,
    )


def _longest(steps: int | None, request: DistillationRequest) -> str:
    """Return the time of the steps that a training has at most; "" where their number follows from epochs."""
    from biosqueeze.distillation.duration import step_seconds

    if steps is None:
        return ""
    with quietly():
        seconds = steps * step_seconds(request)
    return f" (about {duration(seconds)} on this machine)"


def outline(options: Options, absent: Collection[str]) -> tuple[str, ...]:
    """Return the losses that would run, where some inputs are absent: what an earlier step of a recipe has to write.

    Without the models the losses are those of the options, and the kind follows from --data.
    """
    from biosqueeze.distillation.preflight import check_request

    models = {*options.teacher, str(options.checkpoint), str(options.data)}
    if models.isdisjoint(absent):
        inputs = open_inputs(options.teacher, options.checkpoint, weights=False)
        request = _request(options, inputs)
        present = tuple(source for source in options.corpus if source not in absent)
        losses = check_request(replace(request, data=replace(request.data, corpus=present))).losses
        return (f"losses: {formula(losses.weights)}, temperature {losses.temperature:g}",)
    kind, default = ("task", None) if options.data else ("mlm", STUDENT_LOSSES.get(str(options.student)))
    preset = parse_losses(options.loss, kind, default)
    temperature = options.temperature or preset.temperature
    return (f"losses: {preset.formula}, temperature {temperature:g}, unless the models cannot compute one of them",)


def run(options: Options) -> Outcome:
    """Load teachers and student, train the student, write it."""
    from biosqueeze.distillation.pipeline import distill

    inputs = _open_inputs(options)
    out, options = _output(options, inputs), _with_task_defaults(options, inputs)
    if done := take_over(out, "distill", options):
        return done
    options, hashes = resume_where_saved(out, options), recorded_hashes(options)
    request = _request(options, inputs)
    read = inputs_of(options, *request.models.checkpoints)
    with open_output(out, read, force=options.force, resume=bool(options.resume)) as output:
        result = distill(request, output.path)
        if processes.is_main():
            result.save(output.path)
            copy_sentence_layout(inputs.parent.path, output.path)
        written = output.finish(replace(_record(options, inputs, result), inputs=hashes))
    metric, teacher = result.models.metric, result.metrics.get("teacher_score")
    summary = trained_summary(written, result.metrics, metric, teacher) if processes.is_main() else None
    return Outcome(written.path, {"metrics": result.metrics}, summary=summary)


def _request(options: Options, inputs: DistillationInputs) -> DistillationRequest:
    from biosqueeze.models.device import select_device
    from biosqueeze.training.option_checks import check_training_options

    check_training_options(options, evaluated=options.data is not None)
    if options.is_given("field"):
        check_field("--field", options.corpus)
    select_device(options.device)
    return DistillationRequest(
        models=_model_settings(options, inputs),
        teacher_weights=_teacher_weights(options),
        losses=LossSettings.of(options, _default_losses(options, inputs)),
        data=_data_settings(options),
        training=options,
        maskings=options.repeated_maskings,
        augmentation=AugmentationSettings.of(options),
        cache=CacheSettings.of(options),
        head_steps=options.fit_head,
        warm_epochs=options.warm_epochs if options.warm_start != "none" else None,
    )


def _default_losses(options: Options, inputs: DistillationInputs) -> str | None:
    """Return the preset without --loss; None for that of the kind."""
    if has_cosine(inputs.teacher):
        return TEXT_PAIRS
    return None if inputs.has_task else STUDENT_LOSSES.get(str(options.student))


def _with_task_defaults(options: Options, inputs: DistillationInputs) -> Options:
    """Return the options with the defaults of a task where they were not given.

    --max-length is that of the teacher's fine-tuning; with a dev split the training goes on while its scores rise.
    """
    from biosqueeze.finetuning.finetuned_checkpoint import recorded_length

    recorded = recorded_length(inputs.teacher) if inputs.has_task else None
    if recorded and not options.is_given("max_length"):
        options = replace(options, max_length=recorded, sources={**options.sources, "max_length": "teacher"})
    if inputs.has_task and options.data and not any(map(options.is_given, ("epochs", "steps", "schedule"))):
        options = replace(options, schedule=PLATEAU, sources={**options.sources, "schedule": "task"})
    return options


def _model_settings(options: Options, inputs: DistillationInputs) -> ModelSettings:
    return ModelSettings(
        kind=inputs.kind,
        teachers=inputs.teachers,
        student=inputs.student or str(options.student),
        task=options.task,
        reading=options,
        max_length=options.max_length,
        seed=options.seed,
    )


def _data_settings(options: Options) -> DataSettings:
    return DataSettings(
        corpus=options.corpus,
        field=options.field,
        documents=options.documents,
        data=options.data,
        dev_share=options.dev_share,
        unlabelled=options.unlabelled,
        mask_rate=options.mask_rate,
        mask_unit=options.mask_unit,
        has_columns=bool(options.column),
        seed=options.seed,
    )


def _record(options: Options, inputs: DistillationInputs, result: "DistillationResult") -> StageRecord:
    """Collect what the manifest records."""
    task = None
    if inputs.has_task and result.has_head:
        inherited = inputs.teacher.task or TaskRecord(name=str(result.models.task_name))
        task = replace(inherited, **result.task_facts(options.data))
    others = ((f"teacher {number}", teacher) for number, teacher in enumerate(inputs.teachers[1:], 2))
    return StageRecord(
        stage="distill",
        parent=inputs.parent,
        other_parents=(("teacher", inputs.teacher), *others),
        options=options,
        task=task,
        metrics=result.metrics,
        layers=None if inputs.student else result.models.source_layers or (),
    )
