"""Teachers and student, loaded, and what they have in common: vocabulary, labels, length."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.data.output_types import TOKENS, OutputType, output_type_of_config, output_type_of_scheme
from biosqueeze.distillation.layer_provenance import layers_in_teacher
from biosqueeze.distillation.options import DistillationOptions
from biosqueeze.errors import SqueezeError
from biosqueeze.finetuning.finetuned_checkpoint import missing_head_error, task_of
from biosqueeze.model_facts import head_of
from biosqueeze.models.custom_heads import task_head_in
from biosqueeze.models.families import family_of
from biosqueeze.models.load import Loaded, load_config, load_model, load_tokenizer
from biosqueeze.models.students import Student, build_student
from biosqueeze.progress import note
from biosqueeze.tasks import Task
from biosqueeze.training.options import fitting_length


@dataclass(frozen=True)
class DistillationModels:
    """Who teaches whom."""

    teachers: tuple[PreTrainedModel, ...]
    heads: tuple[bool, ...]  # of the teachers: whether it was saved with the head
    student: PreTrainedModel
    student_has_head: bool
    tokenizer: PreTrainedTokenizerBase  # the student's
    readers: tuple[PreTrainedTokenizerBase, ...]  # the teachers'
    length: int  # tokens in a sequence that both can read
    task_name: str | None = None
    task: Task | None = None
    labels: tuple[str, ...] = ()
    output_type: OutputType = TOKENS
    metric: str = "f1"  # by which the best student is chosen
    origin: tuple[int, ...] | None = None  # see models.layer_maps

    @cached_property
    def foreign(self) -> bool:
        """Whether a teacher reads other tokens than the student."""
        own = self.tokenizer.get_vocab()
        return any(reader.get_vocab() != own for reader in self.readers)

    @property
    def packs(self) -> bool:
        """Whether both can read several texts side by side."""
        return all(family_of(model.config).packs for model in (self.student, *self.teachers))


def load_models(
    options: DistillationOptions,
    kind: str,
    teachers: Sequence[Checkpoint],
    student: Checkpoint | str,
    task: str | None = None,
) -> DistillationModels:
    """Load the teachers, and load or make the student.

    Args:
        options: of the stage.
        kind: "mlm" or "task".
        teachers: the first one's tokenizer and labels are the student's.
        student: a checkpoint, or the name of a preset that is made from the first teacher.
        task: name of the kind, where the teacher does not say it.

    Raises:
        SqueezeError: one does not load, or they do not have the same vocabulary or labels.
    """
    first = teachers[0]
    head = "mlm" if kind == "mlm" else head_of(first.config)
    loaded = [load_model(teacher, head) for teacher in teachers]
    tokenizers = [load_tokenizer(teacher) for teacher in teachers]
    labels = first.labels if kind == "task" else ()
    made = _student(options, student, first, head, labels)
    _check_labels(teachers)
    length = min(own.model_max_length for own in (made.tokenizer, *tokenizers))
    pairing = DistillationModels(
        tuple(one.model for one in loaded),
        tuple(one.has_head for one in loaded),
        made.model,
        made.has_head,
        made.tokenizer,
        tuple(tokenizers),
        fitting_length(options.max_length, length),
        origin=made.layers,
    )
    if kind == "task":
        _check_outputs("num_labels", pairing)
        return _with_task(pairing, teachers, *task_of(first, task, "to distil", options))
    if pairing.foreign:
        raise SqueezeError(_no_common_tokens(student if isinstance(student, str) else student.name, teachers))
    _check_outputs("vocab_size", pairing)
    return pairing


def _student(
    options: DistillationOptions, student: Checkpoint | str, teacher: Checkpoint, head: str, labels: Sequence[str]
) -> Student:
    if isinstance(student, str):
        built = build_student(teacher, student, options.seed, head=head)
        note(built.sentence)
        return built
    changes = {"problem_type": teacher.config["problem_type"]} if teacher.config.get("problem_type") else {}
    named = labels or _placeholders(teacher, head)
    loaded: Loaded = load_model(student, head, labels=named or None, seed=options.seed, **changes)
    layers = layers_in_teacher(student, teacher)
    return Student(loaded.model, load_tokenizer(student), layers, student.name, loaded.has_head)


def _placeholders(teacher: Checkpoint, head: str) -> tuple[str, ...]:
    """LABEL_0 and so on of a teacher that does not name its labels, which a student has as many of."""
    if head not in ("token-classification", "sequence-classification"):
        return ()
    return tuple(str(label) for label in (load_config(teacher).id2label or {}).values())


def _check_outputs(what: str, pairing: DistillationModels) -> None:
    """Row by row, soft labels have as many classes on both sides.

    Raises:
        SqueezeError: they have not.
    """
    counts = [getattr(model.config, what) for model in (pairing.student, *pairing.teachers)]
    if len(set(counts)) > 1:
        raise SqueezeError(
            f"student and teachers have {', '.join(map(str, counts))} as {what} in config.json, and only equal numbers "
            "can be compared; make the student from the teacher (biosqueeze shrink, or --student PRESET)"
        )


def _no_common_tokens(student: str, teachers: Sequence[Checkpoint]) -> str:
    """Why plain text cannot be learned from."""
    return (
        f"{student} and {' and '.join(teacher.name for teacher in teachers)} have different vocabularies, and without "
        "a task a teacher gives probabilities of tokens, which mean nothing in another vocabulary; make the student "
        "from the teacher (biosqueeze shrink, or --student PRESET), or distil a teacher that is fine-tuned on a task"
    )


def _check_labels(teachers: Sequence[Checkpoint]) -> None:
    for other in teachers[1:]:
        if other.labels != teachers[0].labels:
            raise SqueezeError(
                f"{other.name} knows the labels {', '.join(other.labels)}, and {teachers[0].name} "
                f"{', '.join(teachers[0].labels)}; only teachers with the same ones can be averaged"
            )


def _with_task(
    pairing: DistillationModels, teachers: Sequence[Checkpoint], name: str, task: Task
) -> DistillationModels:
    for teacher in teachers:
        if task_head_in(teacher) != task.HEAD:
            raise missing_head_error(teacher, task.HEAD, name, "to distil")
    teacher = teachers[0]
    recorded = teacher.task
    scheme = recorded.scheme if recorded else None
    output_type = output_type_of_scheme(scheme) if scheme else output_type_of_config(teacher.config)
    metric = (recorded and recorded.metric) or task.METRIC
    return replace(pairing, task_name=name, task=task, labels=teacher.labels, output_type=output_type, metric=metric)


def dismiss_teachers(pairing: DistillationModels) -> None:
    """Free the memory of teachers that nobody asks any more."""
    for model in pairing.teachers:
        nn.Module.to(model, "meta")
