"""Check a distillation by the configs of its models and its labelled data, before any weights are loaded."""

from collections.abc import Sequence

from transformers import PreTrainedConfig

from biosqueeze.data.output_types import TOKENS, OutputType
from biosqueeze.distillation.losses.chosen import choose_losses
from biosqueeze.distillation.losses.config import LossConfig, ModelTraits
from biosqueeze.distillation.losses.layer_provenance import heads_in_teacher, layers_in_teacher
from biosqueeze.distillation.models import check_equal_labels, no_common_tokens, task_output_type
from biosqueeze.distillation.request import DistillationRequest, ModelSettings
from biosqueeze.distillation.teachers.cut_vocabulary import tokens_in_teacher
from biosqueeze.distillation.training_data.augmentation import check_kind
from biosqueeze.distillation.training_data.datasets import check_data_labels
from biosqueeze.errors import SqueezeError
from biosqueeze.finetuning.finetuned_checkpoint import task_of
from biosqueeze.models.families import family_of
from biosqueeze.models.loading.load import detect_head, load_config, load_tokenizer
from biosqueeze.models.named.presets import find_preset
from biosqueeze.models.named.students import kept_layers, student_config
from biosqueeze.training.option_checks import check_family


def check_request(request: DistillationRequest) -> LossConfig:
    """Raise what `pipeline.distill` would raise for these heads, labels, losses and layer maps.

    Returns:
        the losses that it would run.

    Raises:
        UsageError: losses and options do not fit together or to the models.
        SqueezeError: a teacher lacks the head, or the data have labels that it lacks.
    """
    models = request.models
    check_equal_labels(models.teachers)
    is_task = models.kind == "task"
    output_type = _check_task(request) if is_task else TOKENS
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
        teachers_have_head=[is_task or detect_head(each, load_config(each)) == "mlm" for each in models.teachers],
        cross_vocabulary=cross_vocabulary,
    )
    return choose_losses(request, traits)


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
    return student_config(teacher, preset), layers
