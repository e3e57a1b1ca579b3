"""Load teachers and student, and check what they must share: vocabulary, labels, length."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch import nn
from transformers import PreTrainedTokenizerBase

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.data.lengths import fitting_length
from biosqueeze.data.output_types import MULTI, SCORE, SINGLE, TOKENS, OutputType, output_type_of_scheme
from biosqueeze.distillation.losses.layer_provenance import heads_in_teacher, layers_in_teacher
from biosqueeze.distillation.request import ModelSettings
from biosqueeze.distillation.teachers.cut_vocabulary import cut_teacher
from biosqueeze.errors import SqueezeError
from biosqueeze.finetuning.finetuned_checkpoint import missing_head_error, record_of, task_of
from biosqueeze.model_facts import head_of
from biosqueeze.models.custom_heads.encoder import HeadedEncoder
from biosqueeze.models.custom_heads.files import has_cosine, output_type_of, saved_score_range, task_head_in
from biosqueeze.models.custom_heads.load import note_dropped_head, with_cosine
from biosqueeze.models.families import family_of
from biosqueeze.models.loading.load import LoadedModel, load_config, load_model, load_tokenizer
from biosqueeze.models.named.students import Student, build_student
from biosqueeze.models.verify import check_finite_parameters
from biosqueeze.progress import note
from biosqueeze.tasks import Task
from biosqueeze.tasks.formulation import Formulation
from biosqueeze.tasks.readers.relations import entities_of

ON_PLAIN_TEXT = ("ner", "pico", "classification")
"""Kinds of task of which any text is an unlabelled example."""
_LABELS = {SINGLE: "one label each", MULTI: "any number of labels"}


@dataclass(frozen=True)
class DistillationModels:
    """Teachers and student with their tokenizers, and the task that they share.

    A model is a PreTrainedModel, or a HeadedEncoder with the same interface.
    """

    teachers: tuple[Any, ...]
    teachers_have_head: tuple[bool, ...]  # whether each teacher was saved with its head
    student: Any
    student_has_head: bool
    tokenizer: PreTrainedTokenizerBase  # the student's
    teacher_tokenizers: tuple[PreTrainedTokenizerBase, ...]
    length: int  # tokens in a sequence that all models have positions for
    task_name: str | None = None
    task: Task | None = None
    labels: tuple[str, ...] = ()
    output_type: OutputType = TOKENS
    metric: str = "f1"  # by which the best student is chosen
    source_layers: tuple[int, ...] | None = None  # the teacher layers that the student was cut from
    source_heads: tuple[tuple[int, ...], ...] | None = None  # and the teacher's heads that each of its layers kept

    @cached_property
    def cross_vocabulary(self) -> bool:
        """Whether a teacher has another vocabulary than the student."""
        vocabulary = self.tokenizer.get_vocab()
        return any(tokenizer.get_vocab() != vocabulary for tokenizer in self.teacher_tokenizers)

    @property
    def packs(self) -> bool:
        """Whether all models can process several packed texts in one sequence."""
        return all(family_of(model.config).supports_packing for model in (self.student, *self.teachers))

    @property
    def reads_pairs(self) -> bool:
        """Whether the models encode two texts separately and compare them, so that any two texts will do."""
        return isinstance(self.student, HeadedEncoder)

    @property
    def reads_plain_text(self) -> bool:
        """Whether any text will do as unlabelled data; otherwise the examples are built from JSON records."""
        return self.reads_pairs or self.task_name in ON_PLAIN_TEXT

    @property
    def known_task(self) -> Task:
        """The task.

        Raises:
            ValueError: the teachers are plain encoders.
        """
        if self.task is None:
            raise ValueError("plain encoders have no task")
        return self.task


def load_models(settings: ModelSettings) -> DistillationModels:
    """Load the teachers, and load or build the student.

    Raises:
        SqueezeError: a model does not load, or vocabularies or labels differ where they must be equal.
    """
    teachers, first = settings.teachers, settings.teachers[0]
    head = "mlm" if settings.kind == "mlm" else head_of(first.config)
    task = task_of(first, settings.task, "to distil", settings.reading) if settings.kind == "task" else None
    output_type = task_output_type(teachers, *task) if task else TOKENS
    loaded = [load_model(teacher, head) for teacher in teachers]
    student = _load_student(settings, head)
    if task:
        student.model.config.update({"problem_type": output_type.problem_type})
    for model, name in zip(loaded, [teacher.name for teacher in teachers], strict=True):
        check_finite_parameters(model.model, name)
    check_finite_parameters(student.model, settings.student_name)
    check_equal_labels(teachers)
    own = [load_tokenizer(teacher) for teacher in teachers]
    positions = min(tokenizer.model_max_length for tokenizer in (student.tokenizer, *own))
    pairs = [
        cut_teacher(model.model, tokenizer, student.tokenizer, teacher.name)
        for model, tokenizer, teacher in zip(loaded, own, teachers, strict=True)
    ]
    models = DistillationModels(
        tuple(model for model, _ in pairs),
        tuple(teacher.has_head for teacher in loaded),
        student.model,
        student.has_head,
        student.tokenizer,
        tuple(tokenizer for _, tokenizer in pairs),
        fitting_length(settings.max_length, positions),
        source_layers=student.layers,
        source_heads=None if isinstance(settings.student, str) else heads_in_teacher(settings.student, first),
    )
    if task:
        _check_outputs("num_labels", models)
        models = _with_cosine_heads(models, settings) if has_cosine(first) else models
        return _with_task(replace(models, output_type=output_type), first, *task)
    if models.cross_vocabulary:
        raise SqueezeError(no_common_tokens(settings.student_name, teachers))
    _check_outputs("vocab_size", models)
    return models


def _load_student(settings: ModelSettings, head: str) -> Student:
    """Build the student from the first teacher by a preset, or load it with a head of the teacher's shape."""
    teacher = settings.teachers[0]
    if isinstance(settings.student, str):
        built = build_student(teacher, settings.student, settings.seed, head=head)
        note(built.summary)
        return built
    labels = (teacher.labels if settings.kind == "task" else ()) or _placeholder_labels(teacher, head)
    loaded: LoadedModel = load_model(settings.student, head, labels=labels or None, seed=settings.seed)
    if not has_cosine(teacher):
        note_dropped_head(settings.student)
    layers = layers_in_teacher(settings.student, teacher)
    return Student(loaded.model, load_tokenizer(settings.student), layers, settings.student.name, loaded.has_head)


def _with_cosine_heads(models: DistillationModels, settings: ModelSettings) -> DistillationModels:
    """Return the models with the heads of the teachers; the student's is that of the first, for it has no weights."""
    ranges = [saved_score_range(teacher) for teacher in settings.teachers]
    teachers = (with_cosine(model, *scores) for model, scores in zip(models.teachers, ranges, strict=True))
    return replace(models, teachers=tuple(teachers), student=with_cosine(models.student, *ranges[0]))


def _placeholder_labels(teacher: Checkpoint, head: str) -> tuple[str, ...]:
    """Return LABEL_0 and so on for a teacher without label names, so that the student has equally many."""
    if head not in ("token-classification", "sequence-classification"):
        return ()
    return tuple(str(label) for _, label in sorted((load_config(teacher).id2label or {}).items()))


def _check_outputs(name: str, models: DistillationModels) -> None:
    """Check that all heads have equally many outputs, so that soft labels can be compared row by row.

    Raises:
        SqueezeError: they differ.
    """
    counts = [getattr(model.config, name) for model in (models.student, *models.teachers)]
    if len(set(counts)) > 1:
        raise SqueezeError(
            f"student and teachers have {', '.join(map(str, counts))} as {name} in config.json, and only equal numbers "
            "can be compared; make the student from the teacher (biosqueeze shrink, or --student PRESET)"
        )


def no_common_tokens(student: str, teachers: Sequence[Checkpoint]) -> str:
    """Return the message for models of different vocabularies without a task."""
    return (
        f"{student} and {' and '.join(teacher.name for teacher in teachers)} have different vocabularies, and without "
        "a task the outputs of the teacher are probabilities of tokens of its vocabulary; make the student from the "
        "teacher (biosqueeze shrink, or --student PRESET), or distil a teacher that is fine-tuned on a task"
    )


def check_equal_labels(teachers: Sequence[Checkpoint]) -> None:
    """Check that all teachers have the same labels in the same order.

    Raises:
        SqueezeError: they have not.
    """
    for other in teachers[1:]:
        if other.labels != teachers[0].labels:
            raise SqueezeError(
                f"{other.name} has the labels {', '.join(other.labels)}, and {teachers[0].name} "
                f"{', '.join(teachers[0].labels)}; give teachers with equal labels, whose outputs can be averaged"
            )


def _with_task(models: DistillationModels, teacher: Checkpoint, name: str, task: Task) -> DistillationModels:
    recorded = record_of(teacher, name)
    metric = (recorded and recorded.metric) or task.METRIC
    return replace(models, task_name=name, task=task, labels=teacher.labels, metric=metric)


def task_output_type(teachers: Sequence[Checkpoint], name: str, task: Task) -> OutputType:
    """Return the output type of teachers with a task.

    Raises:
        SqueezeError: one of them has no head for the task, or was fine-tuned on another task or formulation than the
            first, so that logits of the same inputs cannot be averaged.
    """
    for teacher in teachers:
        if task_head_in(teacher) != task.HEAD:
            raise missing_head_error(teacher, task.HEAD, name, "to distil")
    first, *others = teachers
    output_type = _output_type(first, name)
    wanted = _formulation(first, name, task, output_type)
    for other in others:
        found = _formulation(other, name, task, _output_type(other, name))
        if found != wanted:
            raise SqueezeError(
                f"{other.name} was fine-tuned for {found} and {first.name} for {wanted}; give teachers that were "
                "fine-tuned in the same way, whose outputs can be averaged"
            )
    return output_type


def _output_type(teacher: Checkpoint, name: str) -> OutputType:
    recorded = record_of(teacher, name)
    if recorded and recorded.scheme:
        return output_type_of_scheme(recorded.scheme)
    # A cross-encoder may be published without the problem_type of its single output.
    return SCORE if name == "similarity" else output_type_of(teacher)


def _formulation(teacher: Checkpoint, name: str, task: Task, output_type: OutputType) -> str:
    """Describe what inputs and logits of a teacher mean; without a record, as `name` and `task` say."""
    kind = teacher.task.name if teacher.task else name
    words = f"{kind} with {_LABELS[output_type]}" if output_type in _LABELS else kind
    if kind != "relation":
        return words
    formulation = Formulation.from_manifest(teacher.task.formulation) if teacher.task else task.formulation
    return f"{words} and --entities {entities_of(formulation)}"


def free_teachers(models: DistillationModels) -> None:
    """Free the memory of teachers that are not run again."""
    for model in models.teachers:
        nn.Module.to(model, "meta")
