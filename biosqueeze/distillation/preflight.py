"""Check a distillation by the configs of its models and its labelled data, before any weights are loaded."""

from collections.abc import Sequence

from transformers import PreTrainedConfig

from biosqueeze.data.output_types import TOKENS, OutputType
from biosqueeze.distillation.datasets import check_data_labels
from biosqueeze.distillation.layer_provenance import layers_in_teacher
from biosqueeze.distillation.loss_config import build_loss_config, check_several_teachers, check_temperature
from biosqueeze.distillation.models import check_equal_labels, task_output_type
from biosqueeze.distillation.request import DistillationRequest, ModelSettings
from biosqueeze.finetuning.finetuned_checkpoint import task_of
from biosqueeze.models.load import load_config
from biosqueeze.models.presets import find_preset
from biosqueeze.models.students import kept_layers, student_config


def check_request(request: DistillationRequest) -> None:
    """Raise what `pipeline.distill` would raise for these heads, labels, losses and layer maps.

    Raises:
        UsageError: losses and options do not fit together or to the models.
        SqueezeError: a teacher lacks the head, or the data have labels that it lacks.
    """
    models = request.models
    check_equal_labels(models.teachers)
    output_type = _check_task(request) if models.kind == "task" else TOKENS
    if request.losses.loss or models.kind == "mlm" or request.losses.layer_map:  # else the run may choose others
        teacher = load_config(models.teachers[0])
        student, source_layers = _student(models, teacher)
        losses = build_loss_config(request.losses, models.kind, output_type, (student, teacher), source_layers)
        check_several_teachers(losses, [each.name for each in models.teachers])
        check_temperature(request.losses.temperature, losses)


def _check_task(request: DistillationRequest) -> OutputType:
    """Check heads and labels; return the output type."""
    teachers = request.models.teachers
    name, task = task_of(teachers[0], request.models.task, "to distil", request.models.reading)
    output_type = task_output_type(teachers, name, task)
    source = request.data.data
    if source:
        data = task.read(source, ("train",) if request.data.dev_share else ("train", "dev"))
        check_data_labels(teachers[0].labels, data, source)
    return output_type


def _student(models: ModelSettings, teacher: PreTrainedConfig) -> tuple[PreTrainedConfig, Sequence[int] | None]:
    """Return the student's config, and the teacher layers that it consists of."""
    if not isinstance(models.student, str):
        return load_config(models.student), layers_in_teacher(models.student, models.teachers[0])
    preset = find_preset(models.student)
    layers = kept_layers(teacher, preset.kept_layers) if preset.kept_layers else None
    return student_config(teacher, preset), layers
