"""Check a distillation by the configs of its models and its labelled data, before any weights are loaded."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedConfig

from biosqueeze.data.output_types import TOKENS, OutputType
from biosqueeze.distillation.dev_scores import has_trained_head, without_dev_scores
from biosqueeze.distillation.losses.chosen import choose_losses
from biosqueeze.distillation.losses.config import LossConfig, ModelTraits
from biosqueeze.distillation.losses.layer_provenance import heads_in_teacher, layers_in_teacher
from biosqueeze.distillation.models import ON_PLAIN_TEXT, check_equal_labels, no_common_tokens, task_output_type
from biosqueeze.distillation.request import DistillationRequest, ModelSettings
from biosqueeze.distillation.teachers.cut_vocabulary import tokens_in_teacher
from biosqueeze.distillation.training_data.augmentation import check_kind
from biosqueeze.distillation.training_data.datasets import check_data_labels, check_data_options
from biosqueeze.distillation.training_data.unlabelled import check_corpus
from biosqueeze.distillation.training_data.word_proposer import checked_proposer
from biosqueeze.errors import SqueezeError
from biosqueeze.finetuning.finetuned_checkpoint import task_of
from biosqueeze.model_facts import head_of
from biosqueeze.models.count import count_parts
from biosqueeze.models.custom_heads.files import has_cosine, predicts_masked
from biosqueeze.models.families import family_of
from biosqueeze.models.loading.detection import detect_head
from biosqueeze.models.loading.load import load_config, load_tokenizer
from biosqueeze.models.named.presets import find_preset
from biosqueeze.models.named.students import kept_layers, plan_student
from biosqueeze.training.option_checks import check_family
from biosqueeze.training.options import TrainingOptions


@dataclass(frozen=True)
class CheckedRequest:
    """What a distillation would run with."""

    losses: LossConfig
    training: TrainingOptions
    """Of the request; without a plateau where no score on dev could end it."""
    parameters: int
    """Of the student that is written."""


def check_request(request: DistillationRequest) -> CheckedRequest:
    """Raise what `pipeline.distill` would raise for these heads, labels, losses and layer maps.

    Raises:
        UsageError: losses and options do not fit together or to the models.
        SqueezeError: a teacher lacks the head, or the data have labels that it lacks.
    """
    models = request.models
    check_equal_labels(models.teachers)
    is_task = models.kind == "task"
    if is_task:
        output_type = _check_task(request)
    else:
        output_type = TOKENS
        check_corpus(request.data)
    cross_vocabulary = _cross_vocabulary(models)
    if cross_vocabulary and not is_task:
        raise SqueezeError(no_common_tokens(models.student_name, models.teachers))
    teacher = load_config(models.teachers[0])
    student, source_layers = student_of(models, teacher)
    check_family(request.training, family_of(student))
    traits = ModelTraits(
        student=student,
        teacher=teacher,
        output_type=output_type,
        source_layers=source_layers,
        source_heads=None if isinstance(models.student, str) else heads_in_teacher(models.student, models.teachers[0]),
        teachers_have_head=[is_task or predicts_masked(each) for each in models.teachers],
        cross_vocabulary=cross_vocabulary,
    )
    losses, training = choose_losses(request, traits), request.training
    is_trained = has_trained_head(request, losses, before=_has_head(models, student, teacher))
    if not is_trained:
        training = without_dev_scores(request, losses)
    head = _head(models) if is_trained else "base"
    architecture = family_of(student).architecture(head)
    return CheckedRequest(losses, training, count_parts(with_outputs_of(teacher, student), architecture)["total"])


def _head(models: ModelSettings) -> str:
    """Return the head of teachers and student."""
    return head_of(models.teachers[0].config) if models.kind == "task" else "mlm"


def _has_head(models: ModelSettings, student: PreTrainedConfig, teacher: PreTrainedConfig) -> bool:
    """Return whether the student starts with a trained head for what the first teacher predicts."""
    first = models.teachers[0]
    if has_cosine(first):
        return True  # it has no weights
    is_task, head = models.kind == "task", _head(models)
    if isinstance(models.student, str):
        family, is_cut = family_of(student), find_preset(models.student).shape is None
        is_alike = family is family_of(teacher) and student.hidden_size == teacher.hidden_size
        return (is_task or predicts_masked(first)) and (is_cut or (is_alike and not family.has_bottleneck))
    if not is_task:
        return predicts_masked(models.student)
    names, others = (sorted((config.id2label or {}).values()) for config in (student, teacher))
    is_equal = names == others or len(names) == len(others) == 1 or head == "question-answering"
    return is_equal and detect_head(models.student, student) == head


def with_outputs_of(teacher: PreTrainedConfig, student: PreTrainedConfig) -> PreTrainedConfig:
    """Return the student's config with a head of the teacher's shape."""
    changed = copy.deepcopy(student)
    changed.id2label, changed.problem_type = teacher.id2label, teacher.problem_type
    return changed


def _cross_vocabulary(models: ModelSettings) -> bool:
    """Return whether the tokenizers differ, and the student's vocabulary is no part of a teacher's."""
    if len(models.checkpoints) == 1:
        return False
    *teachers, student = (load_tokenizer(checkpoint) for checkpoint in models.checkpoints)
    if isinstance(models.student, str):
        student = teachers[0]
    return any(
        teacher.get_vocab() != student.get_vocab() and tokens_in_teacher(student, teacher) is None
        for teacher in teachers
    )


def _check_task(request: DistillationRequest) -> OutputType:
    """Check heads and labels; return the output type."""
    teachers = request.models.teachers
    name, task = task_of(teachers[0], request.models.task, "to distil", request.models.reading)
    output_type = task_output_type(teachers, name, task)
    if request.augmentation:
        check_kind(name)
        checked_proposer(request.augmentation, teachers[0], weights=False)
    is_plain = name in ON_PLAIN_TEXT or has_cosine(teachers[0])
    check_data_options(request.data, name, reads_plain_text=is_plain)
    check_corpus(request.data, None if is_plain else task)
    source = request.data.data
    if source:
        data = task.read(source, ("train",) if request.data.dev_share else ("train", "dev"))
        check_data_labels(teachers[0].labels, data, source)
    return output_type


def student_of(models: ModelSettings, teacher: PreTrainedConfig) -> tuple[PreTrainedConfig, Sequence[int] | None]:
    """Return the student's config, and the teacher layers that it consists of."""
    if not isinstance(models.student, str):
        return load_config(models.student), layers_in_teacher(models.student, models.teachers[0])
    preset = find_preset(models.student)
    layers = kept_layers(teacher, preset.kept_layers) if preset.kept_layers else None
    return plan_student(teacher, preset), layers
