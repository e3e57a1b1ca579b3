"""Run a distillation from its request to the trained student; the package's docstring lists the steps."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from biosqueeze.distillation.dev_scores import has_trained_head, without_dev_scores
from biosqueeze.distillation.learner import Distiller
from biosqueeze.distillation.losses.config import DEFAULT_HEAD_STEPS
from biosqueeze.distillation.models import DistillationModels, load_models
from biosqueeze.distillation.request import UNCOMPARED_ON_RESUME, DistillationRequest
from biosqueeze.distillation.teachers.head_fitting import HeadFitting
from biosqueeze.distillation.teachers.memory_cache import MemoryCachedTeacher
from biosqueeze.distillation.teachers.mlm_head import fit_missing_heads
from biosqueeze.distillation.teachers.score import teacher_score
from biosqueeze.distillation.teachers.setup import (
    TeacherSetup,
    cross_vocabulary_teachers,
    set_up_teachers,
    teacher_source,
)
from biosqueeze.distillation.teachers.sources import LiveTeacher, Teacher
from biosqueeze.distillation.training_data.augmentation import build_augmentation
from biosqueeze.distillation.training_data.datasets import TaskDataBuilder, TrainingData, load_masked_text
from biosqueeze.distillation.warm_start import keep_log, warm_start
from biosqueeze.files.saved_states import complete_states
from biosqueeze.finetuning.dev_evaluation import DevSet
from biosqueeze.finetuning.finetuned_checkpoint import trained_on_dev
from biosqueeze.models.dropout import set_dropout
from biosqueeze.models.loading.load import without_head
from biosqueeze.progress import note
from biosqueeze.system import processes
from biosqueeze.training.batches import BatchSchedule, ItemSource
from biosqueeze.training.job import TrainingJob, TrainingSummary, steps_of
from biosqueeze.training.loop import train
from biosqueeze.training.option_checks import check_supported
from biosqueeze.training.precision import precision_of
from biosqueeze.training.resuming.hashes import checkpoint_hash, source_hash
from biosqueeze.training.resuming.state import check_options, saved_identity
from biosqueeze.training.sources import Mixture

_CACHED = "teacher outputs in memory"  # in what a state records


@dataclass(frozen=True)
class DistillationResult:
    """The trained student and what the manifest records."""

    student: PreTrainedModel  # without its head where no loss trained a new one
    has_head: bool
    models: DistillationModels
    metrics: dict[str, Any]

    def save(self, directory: Path) -> None:
        """Write the student's weights, config and tokenizer."""
        self.student.save_pretrained(directory)
        self.models.tokenizer.save_pretrained(directory)

    def task_facts(self, data: str | None) -> dict[str, Any]:
        """Return what the manifest records of the task, without empty values; `data` is --data."""
        models = self.models
        facts = {
            "name": models.task_name,
            "data": data,
            "labels": models.labels,
            "metric": models.metric,
            "max_length": models.length,
            "formulation": models.task.formulation.non_defaults() if models.task else None,
        }
        return {key: value for key, value in facts.items() if value}


def distill(request: DistillationRequest, directory: Path) -> DistillationResult:
    """Load teachers and student, read the data, and train the student.

    Args:
        request: what to do.
        directory: of the output; training states are saved there.

    Raises:
        UsageError: models, data, losses and options do not fit together.
        SqueezeError: something cannot be read, written or computed.
        KeyboardInterrupt: Ctrl-C; the training state was saved first.
    """
    models = load_models(request.models)
    setup = set_up_teachers(request, models)
    check_supported(request.training, models.student)
    trained_head = has_trained_head(request, setup.loss_config, before=models.student_has_head)
    if not trained_head:
        request = replace(request, training=without_dev_scores(request, setup.loss_config))
    check_options(directory, request.training, UNCOMPARED_ON_RESUME)  # before the teacher runs, which takes minutes
    data = _load_data(request, setup)
    dev = _dev_set(data, trained_head=trained_head)
    teachers_score = teacher_score(request, models, dev)
    fitting = _head_fitting(request, data.source, directory) if setup.loss_config.fits_heads else None
    fitted_heads = fit_missing_heads(models, request.models.teachers, fitting)
    source, teacher, recorded = _select_teacher(request, setup, data.source, fitted_heads, directory)
    loss_config, seed, identity = setup.loss_config, request.training.seed, _identity(request, data)
    if loss_config.dropout is not None:
        set_dropout(models.student, loss_config.dropout)
    student, training = warm_start(models, data, request, identity, directory)
    learner = Distiller(student, teacher, loss_config, teacher_width=models.teachers[0].config.hidden_size, seed=seed)
    summary = train(
        TrainingJob(
            title="distil",
            identity=identity | recorded,
            uncompared=UNCOMPARED_ON_RESUME,
            learner=learner,
            source=source,
            options=training,
            directory=directory,
            maskings=request.maskings,
            evaluate=dev.evaluator(precision_of(training)) if dev else None,
            dev_sequences=len(dev.windows) if dev else 0,
            keeps_better_start=dev is not None and _may_keep_start(request, models),
            metric=models.metric,
            goal=teachers_score,
        )
    )
    keep_log(directory)
    if dev and processes.is_main() and not summary.best.get(str(models.metric)):
        dev.warn_of_no_entities(learner.model, precision_of(training))
    metrics = {
        **summary.as_metrics(),
        "losses": dict(loss_config.weights),
        "temperature": loss_config.temperature,
        **_teacher_facts(teacher, teachers_score),
        **({"fitted_heads": fitted_heads} if fitted_heads else {}),
        **_use_of_text(request, data.source, summary),
    }
    student = learner.model if trained_head else _without_new_head(learner.model, setup, seed)
    return DistillationResult(student, trained_head, models, metrics)


def _select_teacher(
    request: DistillationRequest,
    setup: TeacherSetup,
    data: ItemSource,
    fitted_heads: Mapping[str, Any],
    directory: Path,
) -> tuple[ItemSource, Teacher, dict[str, bool | None]]:
    """Select the source of teacher outputs, in a resumed training as before, whatever memory is free now.

    Returns:
        the training data and the teacher, see `teacher_source`; and what the states record for this.
    """
    is_begun = bool(request.training.resume and complete_states(directory))
    was_cached = saved_identity(directory, _CACHED) if is_begun else None
    source, teacher = teacher_source(request, setup, data, fitted_heads, was_cached)
    return source, teacher, {_CACHED: was_cached if is_begun else isinstance(teacher, MemoryCachedTeacher)}


def _teacher_facts(teacher: Teacher, score: float | None) -> dict[str, Any]:
    """Return what the manifest records of the teacher: its score on dev, and whether it computed in int8."""
    facts: dict[str, Any] = {} if score is None else {"teacher_score": round(score, 6)}
    if isinstance(teacher, LiveTeacher | MemoryCachedTeacher) and teacher.computes_in_int8:
        facts["teacher_compute"] = "int8"
    return facts


def _dev_set(data: TrainingData, *, trained_head: bool) -> DevSet | None:
    """Return the dev split, unless the student's head stays untrained: its scores are chance."""
    if data.dev is None or not trained_head:
        return None
    data.dev.warn_of_one_label()
    return data.dev


def _may_keep_start(request: DistillationRequest, models: DistillationModels) -> bool:
    """Return whether the student has a trained head before the distillation, and dev was no part of its training."""
    student = request.models.student
    start = request.models.teachers[0] if isinstance(student, str) else student
    has_head = models.student_has_head or request.warm_epochs is not None
    return has_head and not request.data.dev_share and not trained_on_dev(start)


def _head_fitting(request: DistillationRequest, source: ItemSource, directory: Path) -> HeadFitting:
    """Return how heads are fitted: for --fit-head steps, or by default for no more than the distillation has."""
    training = request.training
    schedule = BatchSchedule(source, training.batch_size, training.seed, total=0, processes=processes.count())
    steps = request.head_steps or min(DEFAULT_HEAD_STEPS, steps_of(training, schedule.batches_per_epoch)[1])
    return HeadFitting(steps, source, training, directory)


def _load_data(request: DistillationRequest, setup: TeacherSetup) -> TrainingData:
    """Read the training data; teachers with another vocabulary are run on them."""
    teachers = cross_vocabulary_teachers(request, setup)
    models, training = setup.models, request.training
    augmentation = build_augmentation(
        request.augmentation, models.task_name, setup.checkpoints[0], precision_of(training)
    )
    if models.task is None:
        return load_masked_text(request.data, models)
    return TaskDataBuilder(request.data, models, training, augmentation, teachers).build()


def _use_of_text(request: DistillationRequest, source: ItemSource, summary: TrainingSummary) -> dict[str, Any]:
    """Say, and return for the manifest, how much of the unlabelled text was trained on beside labelled data."""
    if not isinstance(source, Mixture) or source.unlabelled is None or not source.labelled:
        return {}
    training, available = request.training, source.available
    size = training.batch_size * training.accumulate * processes.count()
    drawn = source.unlabelled_among(summary.steps * size)
    note(f"unlabelled: about {drawn:,} sequences were drawn, from {available:,}")
    return {"unlabelled": {"drawn": drawn, "available": available}}


def _identity(request: DistillationRequest, data: TrainingData) -> dict[str, Any]:
    """Return what must be unchanged for --resume, beside the options."""
    student = request.models.student
    return {
        "teacher or checkpoint": [checkpoint_hash(checkpoint) for checkpoint in request.models.checkpoints],
        "student": student if isinstance(student, str) else None,
        "data or corpus": source_hash(data.content),
        "dev": source_hash(data.dev.content) if data.dev else None,
    }


def _without_new_head(student: PreTrainedModel, setup: TeacherSetup, seed: int) -> PreTrainedModel:
    """Remove the student's head, which is still as initialized."""
    losses = ", ".join(setup.loss_config.weights)
    note(f"the student is saved without a head: none of the losses {losses} trains one")
    return without_head(student, seed)
