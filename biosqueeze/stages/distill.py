"""Distil teachers into a student: task-agnostic on plain text, or task-specific with a fine-tuned teacher."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from biosqueeze import processes
from biosqueeze.checkpoint import Checkpoint, Record, derive_out, drafting, open_checkpoint
from biosqueeze.errors import UsageError
from biosqueeze.manifest import head_of
from biosqueeze.models.own_head import refuse_own_head
from biosqueeze.options import Argument, Outcome, Plan
from biosqueeze.progress import warn
from biosqueeze.training.distilling import Distilling
from biosqueeze.training.mixes import mix_of

if TYPE_CHECKING:
    from biosqueeze.training.pairing import Pairing

EXAMPLE = "biosqueeze distill --teacher dmis-lab/biobert-v1.1 --student tiny --corpus pubmed.txt.gz"
SAMPLE_TEXT = "demo:text"
TASK_HEADS = ("token-classification", "sequence-classification", "question-answering")


@dataclass(frozen=True, kw_only=True)
class Options(Distilling):
    """Distil a teacher into a student.

    With a plain encoder as the teacher this is task-agnostic: masked language modelling, the teacher's
    distribution over masked tokens, and its inner states. With a teacher that was fine-tuned on a task it is
    task-specific: the teacher's soft labels and inner states, on labelled data (--data) and on any amount of unlabelled
    text (--corpus). What is learned is said by --loss.
    """

    checkpoint: Annotated[
        str | None,
        "The student: directory, Hub id, or - ; or make one with --student.",
        Argument(unless="student"),
    ] = None
    teacher: Annotated[
        tuple[str, ...], "The teacher: directory, Hub id, or demo:minilm. Repeatable: their soft labels are averaged."
    ]
    teacher_weights: Annotated[
        str | None, "How much each of several teachers counts, such as 2,1; alike if left out."
    ] = None
    student: Annotated[str | None, "Make the student from the teacher by a preset; `shrink --help` lists them."] = None
    corpus: Annotated[tuple[str, ...], "Text (.txt, .jsonl, .gz) or a directory of it; repeatable."] = ()
    field: Annotated[str, "Which field of a JSONL corpus holds the text."] = "text"
    data: Annotated[str | None, "Labelled data of the teacher's task; its dev split picks the best checkpoint."] = None
    task: Annotated[str | None, "Kind of task of a teacher that does not say it; see biosqueeze tasks."] = None
    lr: Annotated[float, "Peak learning rate."] = 5e-4
    batch_size: Annotated[int, "Sequences in a batch."] = 32


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
    mix_of(options.loss, kind)
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
    from biosqueeze.data.corpus import find

    if kind == "mlm":
        for flag, given in (("--data", options.data), ("--task", options.task)):
            if given:
                raise UsageError(
                    f"{flag} needs a teacher that was fine-tuned on it, and {teacher.name} has no task head; "
                    f"first: biosqueeze finetune {teacher.name} --data {options.data or 'DIRECTORY'}"
                )
    elif not options.data and not options.corpus:
        raise UsageError(
            f"{teacher.name} is fine-tuned on a task: give its labelled data with --data, text with --corpus, or both"
        )
    if options.warm_start != "none" and not options.data:
        raise UsageError("--warm-start finetune learns from labels; give --data with them")
    for source in options.corpus:
        find(source)


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
    mix = mix_of(options.loss, setting.kind)
    said = " + ".join(f"{weight:g} {name}" for name, weight in mix.weights.items())
    heat = mix.temperature if options.temperature is None else options.temperature
    text = [*options.corpus, *([options.data] if options.data else [])] or ["the generated sample"]
    length = f"{options.steps} steps" if options.steps else f"{options.epochs:g} epochs"
    names = " and ".join(teacher.name for teacher in setting.teachers)
    return Plan(
        out=setting.out,
        steps=(
            f"distil {names} into {options.checkpoint or options.student} ({setting.kind}: {said}, "
            f"temperature {heat:g})",
            f"train on {', '.join(text)}: {length}, lr {options.lr:g}",
        ),
        parameters_before=parameters_of(setting.teacher),
        parameters_after=parameters_of(setting.student)
        if setting.student
        else student_parameters(setting.teacher, str(options.student)),
    )


def run(options: Options) -> Outcome:
    """Load teachers and student, train the student, write it."""
    from biosqueeze.training.pairing import load_pairing

    setting = _settle(options)
    inputs = [c for c in (*setting.teachers, setting.student) if c is not None]
    with drafting(setting.out, inputs, force=options.force, resume=options.resume) as draft:
        pairing = load_pairing(
            options, setting.kind, setting.teachers, setting.student or str(options.student), options.task
        )
        metrics = _train(options, setting, pairing, draft.path)
        if processes.is_main():
            pairing.student.save_pretrained(draft.path)
            pairing.tokenizer.save_pretrained(draft.path)
        made = draft.finish(_record(options, setting, pairing, metrics))
    return Outcome(made.path, {"metrics": metrics})


def _train(options: Options, setting: _Setting, pairing: "Pairing", directory: Path) -> dict[str, Any]:
    from biosqueeze.training.distiller import Distiller
    from biosqueeze.training.lessons import lessons_of
    from biosqueeze.training.loop import Job, precision_of, train
    from biosqueeze.training.pairing import live_teacher
    from biosqueeze.training.recipes import drop_headless, recipe_of

    student, teacher = pairing.student, pairing.teachers[0]
    recipe = recipe_of(options, setting.kind, pairing.problem, student.config, teacher.config)
    recipe = drop_headless(recipe, setting.teacher.name, has_head=pairing.teachers_have_heads, asked=bool(options.loss))
    lessons = lessons_of(options, pairing, _corpus(options, setting.kind), options.field, options.data)
    summary = train(
        Job(
            what="distil",
            learner=Distiller(
                student,
                live_teacher(pairing, recipe, setting.shares, precision_of(options)),
                recipe,
                teacher_width=teacher.config.hidden_size,
            ),
            source=lessons.source,
            options=options,
            directory=directory,
            judge=lessons.judge(precision_of(options)),
            judge_by=pairing.task.METRIC if pairing.task else "f1",
        )
    )
    return {**summary.as_metrics(), "losses": dict(recipe.weights), "temperature": recipe.temperature}


def _corpus(options: Options, kind: str) -> tuple[str, ...]:
    if options.corpus or kind == "task":
        return options.corpus
    warn(
        "no --corpus was given: training on a small sample that biosqueeze generates, which shows that everything "
        "runs and teaches next to nothing; give your own text for a student that you can use"
    )
    return (SAMPLE_TEXT,)


def _record(options: Options, setting: _Setting, pairing: "Pairing", metrics: dict[str, Any]) -> Record:
    task = None
    if setting.kind == "task":
        earlier = (setting.teacher.manifest or {}).get("task") or {}
        known = {"name": pairing.task_name, "data": options.data, "labels": list(pairing.labels)}
        task = {**earlier, **{key: value for key, value in known.items() if value}}
    others = ((f"teacher {n}", teacher) for n, teacher in enumerate(setting.teachers[1:], 2))
    return Record(
        stage="distill",
        parent=setting.student or setting.teacher,
        also=(("teacher", setting.teacher), *others),
        options=options,
        task=task,
        metrics=metrics,
    )
