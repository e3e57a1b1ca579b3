"""Distil teachers into a student: task-agnostic on plain text, or task-specific with a fine-tuned teacher."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from biosqueeze import processes
from biosqueeze.checkpoint import Checkpoint, open_checkpoint
from biosqueeze.distillation.loss_presets import WITHOUT_ATTENTION, parse_losses
from biosqueeze.distillation.options import DistillationOptions
from biosqueeze.errors import UsageError
from biosqueeze.manifest import TaskRecord
from biosqueeze.model_facts import head_of
from biosqueeze.models.custom_head_files import refuse_own_head
from biosqueeze.options import Argument, Outcome, Plan
from biosqueeze.output import StageRecord, derive_out, open_output
from biosqueeze.progress import note, warn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from biosqueeze.distillation.loss_config import LossConfig
    from biosqueeze.distillation.models import DistillationModels
    from biosqueeze.distillation.teacher_setup import TeacherSetup


EXAMPLE = "biosqueeze distill --teacher dmis-lab/biobert-v1.1 --student tiny --corpus pubmed.txt.gz --fit-head 2000"
SAMPLE_TEXT = "demo:text"
TASK_HEADS = ("token-classification", "sequence-classification", "question-answering")


@dataclass(frozen=True, kw_only=True)
class Options(DistillationOptions):
    """Distil a teacher into a student.

    With a plain encoder as the teacher this is task-agnostic: masked language modelling, the teacher's
    distribution over masked tokens, and its inner states. With a teacher that was fine-tuned on a task it is
    task-specific: the teacher's soft labels and inner states, on labelled data (--data) and on unlabelled
    text (--corpus). What is learned is said by --loss.
    """

    checkpoint: Annotated[
        str | None,
        "The student: directory, Hub id, or - ; or make one with --student.",
        Argument(unless="student"),
    ] = None
    teacher: Annotated[
        tuple[str, ...],
        "The teacher: directory, Hub id, or demo:minilm. Repeatable: soft labels are averaged, inner states are the "
        "first one's.",
    ]
    student: Annotated[str | None, "Make the student from the teacher by a preset; `shrink --help` lists them."] = None
    teacher_weights: Annotated[
        str | None, "How much each of several teachers counts, such as 2,1; alike if left out."
    ] = None
    corpus: Annotated[
        tuple[str, ...],
        "Text (.txt, .jsonl, .gz) or a directory of it, repeatable; for relation, similarity, nli and qa JSON lines "
        "with the task's fields.",
    ] = ()
    field: Annotated[str, "Which field of a JSONL corpus holds the text."] = "text"
    data: Annotated[str | None, "Labelled data of the teacher's task; its dev split picks the best checkpoint."] = None
    task: Annotated[str | None, "Kind of task of a teacher that does not say it; see biosqueeze tasks."] = None
    lr: Annotated[float, "Peak learning rate."] = 5e-4
    batch_size: Annotated[int, "Sequences in a batch, in each process that trains."] = 32
    max_length: Annotated[
        int,
        "Tokens in a sequence; if left out, on a task, as in the teacher's fine-tuning. What is longer becomes "
        "windows (text, ner, pico, qa) or is cut.",
    ] = 128


@dataclass(frozen=True)
class _Setting:
    """What is decided before anything heavy is loaded."""

    teachers: tuple[Checkpoint, ...]
    shares: tuple[float, ...]  # of the teachers
    student: Checkpoint | None
    kind: str
    out: Path

    @property
    def teacher(self) -> Checkpoint:
        """The one that the student is made of, if it is made of one, and whose task it is."""
        return self.teachers[0]


def _settle(options: Options, *, weights: bool = True) -> _Setting:
    if (options.checkpoint is None) == (options.student is None):
        raise UsageError("name the student: either a checkpoint (or - in a pipe), or --student PRESET, and not both")
    teachers = tuple(open_checkpoint(name, weights=weights) for name in options.teacher)
    student = open_checkpoint(options.checkpoint, weights=weights) if options.checkpoint else None
    for checkpoint in (*teachers, *([student] if student else [])):
        refuse_own_head(checkpoint, "distill")  # a CRF's logits alone are not its answers
    kind = _kind(teachers)
    _check_sources(options, kind, teachers[0])
    suffix = "distilled" if student else str(options.student)
    out = Path(options.out) if options.out else derive_out(student or teachers[0], suffix)
    parse_losses(options.loss, kind)
    return _Setting(teachers, _shares(options, len(teachers)), student, kind, out)


def _kind(teachers: tuple[Checkpoint, ...]) -> str:
    """Whether the teachers have a task, or speak of text alone."""
    tuned = [teacher for teacher in teachers if head_of(teacher.config) in TASK_HEADS]
    if tuned and len(tuned) < len(teachers):
        plain = next(teacher for teacher in teachers if teacher not in tuned)
        raise UsageError(f"{tuned[0].name} is fine-tuned on a task and {plain.name} is not; give teachers of one kind")
    return "task" if tuned else "mlm"


def _check_sources(options: Options, kind: str, teacher: Checkpoint) -> None:
    """What is not there, and what has no use, is said before anything is loaded."""
    from biosqueeze.data.corpus import find_corpus

    if kind == "mlm":
        _check_plain(options, teacher)
    else:
        _check_task(options, teacher)
    _refuse_idle(options)
    for source in options.corpus:
        find_corpus(source)


def _check_plain(options: Options, teacher: Checkpoint) -> None:
    for name in ("data", "task", "column", "types", "negative"):
        if getattr(options, name):
            raise UsageError(
                f"--{name} needs a teacher that was fine-tuned on it, and {teacher.name} has no task head; "
                f"first: biosqueeze finetune {teacher.name} --data {options.data or 'DIRECTORY'}"
            )


def _check_task(options: Options, teacher: Checkpoint) -> None:
    if not options.data and not options.corpus:
        raise UsageError(
            f"{teacher.name} is fine-tuned on a task: give its labelled data with --data, text with --corpus, or both"
        )
    for name in ("maskings", "mask_rate"):
        if getattr(options, name) != getattr(Options, name):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag}: nothing is masked for a teacher with a task like {teacher.name}; leave it out")
    if options.fit_head:
        raise UsageError(
            f"--fit-head is for the masked-language-model head of a plain encoder, and {teacher.name} is fine-tuned on "
            "a task; leave it out"
        )


def _refuse_idle(options: Options) -> None:
    """No option is ignored in silence."""
    if options.augment and not options.data:
        raise UsageError("--augment makes more of labelled examples; give --data with them, and their teacher")
    for name in ("dev_share", "types", "negative"):
        if getattr(options, name) and not options.data:
            raise UsageError(f"--{name.replace('_', '-')} is about labelled examples; give --data with them")
    if options.warm_start != "none" and not options.data:
        raise UsageError("--warm-start finetune learns from labels; give --data with them")
    if options.unlabelled != Options.unlabelled and not (options.data and options.corpus):
        raise UsageError(
            "--unlabelled says how much of --corpus comes for each example of --data; give both, or leave it out"
        )
    if options.field != Options.field and not options.corpus:
        raise UsageError("--field says where the text of a JSONL --corpus is; give that too, or leave it out")


def _shares(options: Options, count: int) -> tuple[float, ...]:
    if options.teacher_weights is None:
        return (1.0,) * count
    try:
        shares = tuple(float(word) for word in options.teacher_weights.split(","))
    except ValueError:
        shares = ()
    if len(shares) != count or not all(0 < share < float("inf") for share in shares):
        raise UsageError(
            f"--teacher-weights {options.teacher_weights!r}: expected {count} positive numbers, one for each --teacher"
        )
    return shares


def plan(options: Options) -> Plan:
    """Who learns what from whom; reads configs and no weights."""
    from biosqueeze.models.count import parameters_of
    from biosqueeze.models.students import student_parameters

    setting = _settle(options, weights=False)
    mix = parse_losses(options.loss, setting.kind)
    heat = mix.temperature if options.temperature is None else options.temperature
    text = [*options.corpus, *([options.data] if options.data else [])] or ["the generated sample"]
    augmented = f" ({options.augment} augmented copies of each labelled example)" if options.augment else ""
    length = f"{options.steps} steps" if options.steps else f"{options.epochs:g} epochs"
    names = " and ".join(teacher.name for teacher in setting.teachers)
    fitting = (f"first fit the masked-language-model head that {names} lacks: {options.fit_head} steps",)
    return Plan(
        out=setting.out,
        steps=(
            *(fitting if options.fit_head else ()),
            f"distil {names} into {options.checkpoint or options.student} ({setting.kind}: {mix.formula}, "
            f"temperature {heat:g})",
            f"train on {', '.join(text)}{augmented}: {length}, lr {options.lr:g}",
        ),
        parameters_before=parameters_of(setting.teacher),
        parameters_after=parameters_of(setting.student)
        if setting.student
        else student_parameters(setting.teacher, str(options.student)),
    )


def run(options: Options) -> Outcome:
    """Load teachers and student, train the student, write it."""
    from biosqueeze.distillation.models import load_models

    setting = _settle(options)
    options = _fitting(options, setting)
    inputs = [c for c in (*setting.teachers, setting.student) if c is not None]
    with open_output(setting.out, inputs, force=options.force, resume=options.resume) as output:
        pairing = load_models(
            options, setting.kind, setting.teachers, setting.student or str(options.student), options.task
        )
        student, metrics = _train(options, setting, pairing, output.path)
        if processes.is_main():
            student.save_pretrained(output.path)
            pairing.tokenizer.save_pretrained(output.path)
        made = output.finish(_record(options, setting, pairing, metrics))
    return Outcome(made.path, {"metrics": metrics})


def _fitting(options: Options, setting: _Setting) -> Options:
    """The options; where --max-length is left out, on a task, with that of the teacher's fine-tuning."""
    from biosqueeze.finetuning.finetuned_checkpoint import recorded_length

    given = options.sources.get("max_length", "default") != "default" or options.max_length != Options.max_length
    noted = recorded_length(setting.teacher) if setting.kind == "task" else None
    if given or not noted:
        return options
    return replace(options, max_length=noted, sources={**options.sources, "max_length": "teacher"})


def _worth_saving(student: "PreTrainedModel", recipe: "LossConfig", seed: int, *, taught: bool) -> "PreTrainedModel":
    """The student; without its head where that is new and nothing taught it."""
    from biosqueeze.models.load import without_head

    if taught:
        return student
    note(f"the student is saved without a head: none of the losses {', '.join(recipe.weights)} teaches one")
    return without_head(student, seed)


def _train(
    options: Options, setting: _Setting, pairing: "DistillationModels", directory: Path
) -> tuple["PreTrainedModel", dict[str, Any]]:
    """The student as it is to be saved, and how it was trained."""
    from biosqueeze.distillation.augmentation import augmentation_of
    from biosqueeze.distillation.datasets import DataSources, load_training_data
    from biosqueeze.distillation.learner import Distiller
    from biosqueeze.distillation.mlm_head import Fitting, fit_missing_heads
    from biosqueeze.distillation.teacher_setup import foreigners_of, teacher_source
    from biosqueeze.distillation.warm_start import keep_log, warm_start
    from biosqueeze.training.hashes import checkpoint_hash, source_hash
    from biosqueeze.training.loop import TrainingJob, precision_of, train

    faculty = _faculty(options, setting, pairing)
    recipe = faculty.recipe
    foreigners = foreigners_of(options, faculty, setting.student.name if setting.student else str(options.student))
    more = augmentation_of(options, pairing.task_name, setting.teacher)
    corpus = _corpus(options, setting.kind)
    lessons = load_training_data(options, pairing, DataSources(corpus, options.field, options.data, more, foreigners))
    fitted = fit_missing_heads(pairing, setting.teachers, Fitting(options, lessons.source, directory))
    source, answerer = teacher_source(options, faculty, lessons.source, fitted)
    student, after = warm_start(options, pairing, lessons, directory)
    width = pairing.teachers[0].config.hidden_size
    learner = Distiller(student, answerer, recipe, teacher_width=width, seed=options.seed)
    taught = pairing.student_has_head or recipe.teaches_head or options.warm_start != "none"
    started_from = (*setting.teachers, *([setting.student] if setting.student else []))
    identity = {
        "teacher or checkpoint": [checkpoint_hash(checkpoint) for checkpoint in started_from],
        "student": options.student,
        "data or corpus": source_hash(lessons.content),
    }
    summary = train(
        TrainingJob(
            title="distil",
            identity=identity,
            uncompared=("checkpoint", "teacher", "data", "corpus", "cache_teacher"),
            learner=learner,
            source=source,
            options=after,
            directory=directory,
            maskings=options.repeated_maskings,
            # Of a head that nothing teaches the scores are chance.
            evaluate=lessons.judge(precision_of(options)) if taught else None,
            metric=pairing.metric,
        )
    )
    keep_log(directory)
    learned = {"losses": dict(recipe.weights), "temperature": recipe.temperature}
    metrics = {**summary.as_metrics(), **learned, **({"fitted_heads": fitted} if fitted else {})}
    return _worth_saving(learner.model, recipe, options.seed, taught=taught), metrics


def _faculty(options: Options, setting: _Setting, pairing: "DistillationModels") -> "TeacherSetup":
    """What the teachers are asked for; what cannot be is said here, before any data are read."""
    from biosqueeze.distillation.loss_config import (
        build_loss_config,
        check_several_teachers,
        drop_losses_without_head,
        refuse_idle_temperature,
    )
    from biosqueeze.distillation.mlm_head import check_unused_options
    from biosqueeze.distillation.teacher_cache.plan import kept_of
    from biosqueeze.distillation.teacher_setup import TeacherSetup, refuse_idle_sharding
    from biosqueeze.training.loop import check_options

    configs = (pairing.student.config, pairing.teachers[0].config)
    recipe = build_loss_config(_asked(options, pairing), setting.kind, pairing.output_type, configs, pairing.origin)
    check_unused_options(options, pairing, setting.teachers, recipe)
    headless = [teacher.name for teacher, own in zip(setting.teachers, pairing.heads, strict=True) if not own]
    recipe = drop_losses_without_head(recipe, [] if options.fit_head else headless, asked=bool(options.loss))
    check_several_teachers(recipe, [teacher.name for teacher in setting.teachers])
    refuse_idle_temperature(options, recipe)
    faculty = TeacherSetup(pairing, recipe, setting.teachers, setting.shares)
    refuse_idle_sharding(options, faculty)
    check_options(options, pairing.student, evaluated=options.data is not None)
    if options.cache_teacher:
        kept_of(recipe, options.cache_top)
    return faculty


def _asked(options: Options, pairing: "DistillationModels") -> Options:
    """The options; where a task's default cannot be learned, what can takes its place."""
    from biosqueeze.models.layers import attention_sizes

    if options.loss or pairing.task is None:
        return options
    if pairing.foreign:
        note(
            "teacher and student have different vocabularies: soft labels alone are learned, word by word or text by "
            "text"
        )
        return replace(options, loss=("kl",))
    mine, its = (attention_sizes(model.config)[0] for model in (pairing.student, pairing.teachers[0]))
    if options.cache_teacher:
        why = "--cache-teacher keeps no attention"
    elif mine != its:
        why = f"the attention of {mine} heads cannot be compared with that of {its}"
    else:
        return options
    note(f"{why}: soft labels and hidden states are learned")
    return replace(options, loss=WITHOUT_ATTENTION)


def _corpus(options: Options, kind: str) -> tuple[str, ...]:
    if options.corpus or kind == "task":
        return options.corpus
    warn(
        "no --corpus was given: training on a small sample that biosqueeze generates, which shows that everything "
        "runs and teaches next to nothing; give your own text for a student that you can use"
    )
    return (SAMPLE_TEXT,)


def _record(options: Options, setting: _Setting, pairing: "DistillationModels", metrics: dict[str, Any]) -> StageRecord:
    task = None
    if setting.kind == "task":
        changes: dict[str, Any] = {
            "name": pairing.task_name,
            "data": options.data,
            "labels": pairing.labels,
            "max_length": pairing.length,
            "formulation": pairing.task.form.chosen() if pairing.task else None,
        }
        inherited = setting.teacher.task or TaskRecord(name=str(pairing.task_name))
        task = replace(inherited, **{key: value for key, value in changes.items() if value})
    others = ((f"teacher {n}", teacher) for n, teacher in enumerate(setting.teachers[1:], 2))
    return StageRecord(
        stage="distill",
        parent=setting.student or setting.teacher,
        other_parents=(("teacher", setting.teacher), *others),
        options=options,
        task=task,
        metrics=metrics,
        layers=None if setting.student else pairing.origin or (),
    )
