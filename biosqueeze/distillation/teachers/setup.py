"""Set up the teachers: check the losses against them, and select the source of their outputs.

The outputs come from live models on every batch, for labelled examples on a CPU from memory, from the teacher cache, or
from one pass over all data in advance for teachers with another vocabulary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from biosqueeze.backends.torch import cast_products
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.distillation.losses.chosen import choose_losses
from biosqueeze.distillation.losses.config import LossConfig, ModelTraits
from biosqueeze.distillation.models import DistillationModels, free_teachers
from biosqueeze.distillation.request import DistillationRequest
from biosqueeze.distillation.teachers.cache.fill import fill_cache
from biosqueeze.distillation.teachers.cache.plan import CacheRequest, open_teacher_cache
from biosqueeze.distillation.teachers.cross_vocabulary import CrossVocabularyTeachers, TeacherWithTokenizer
from biosqueeze.distillation.teachers.cut_vocabulary import vocabulary_mark
from biosqueeze.distillation.teachers.memory_cache import MemoryCachedTeacher, cached_in_memory
from biosqueeze.distillation.teachers.sources import CachedTeacher, LiveTeacher, NoTeacher, ShardedTeacher, Teacher
from biosqueeze.errors import UsageError
from biosqueeze.models.device import own_device
from biosqueeze.models.families import family_of
from biosqueeze.models.int8_products import quantize_products
from biosqueeze.progress import note
from biosqueeze.system import processes
from biosqueeze.training.batches import BatchSchedule, ItemSource
from biosqueeze.training.job import steps_of
from biosqueeze.training.precision import precision_of, teacher_precision_of
from biosqueeze.training.resuming.hashes import checkpoint_hash
from biosqueeze.training.sources import Mixture


@dataclass(frozen=True)
class TeacherSetup:
    """The teachers of a student with their weights, and the losses that read their outputs."""

    models: DistillationModels
    loss_config: LossConfig
    checkpoints: Sequence[Checkpoint]  # of the teachers
    weights: Sequence[float]


def set_up_teachers(request: DistillationRequest, models: DistillationModels) -> TeacherSetup:
    """Build the loss configuration and check it against the teachers and the options, before any data are read.

    Raises:
        UsageError: losses and options do not fit together or to the models.
        SqueezeError: a loss needs a head that a teacher lacks.
    """
    traits = ModelTraits(
        student=models.student.config,
        teacher=models.teachers[0].config,
        output_type=models.output_type,
        source_layers=models.source_layers,
        source_heads=models.source_heads,
        teachers_have_head=models.teachers_have_head,
        cross_vocabulary=models.cross_vocabulary,
    )
    loss_config = choose_losses(request, traits)
    setup = TeacherSetup(models, loss_config, request.models.teachers, request.teacher_weights)
    _check_sharding(request, setup)
    return setup


def _check_sharding(request: DistillationRequest, setup: TeacherSetup) -> None:
    """Check that the launcher's --use_fsdp has an effect.

    Raises:
        UsageError: no teacher runs during the training, or each process runs it at its own pace.
    """
    live = setup.loss_config.needs_teacher and not (setup.models.cross_vocabulary or request.cache)
    # A try of --auto-batch that fails in one process would leave the others waiting for its part of the weights.
    if processes.sharding() and (setup.loss_config.fits_heads or request.training.auto_batch or not live):
        raise UsageError(
            "--use_fsdp shards a teacher that runs in all processes while the student trains; with --fit-head, "
            "--auto-batch, --cache-teacher, a teacher of another vocabulary, or losses that need no teacher, launch "
            "without it"
        )


def cross_vocabulary_teachers(request: DistillationRequest, setup: TeacherSetup) -> CrossVocabularyTeachers | None:
    """Return the teachers to run on all data in advance, where their vocabulary is not the student's."""
    models, loss_config = setup.models, setup.loss_config
    if not models.cross_vocabulary:
        return None
    teachers = [
        TeacherWithTokenizer(model, tokenizer, min(request.training.max_length, tokenizer.model_max_length))
        for model, tokenizer in zip(models.teachers, models.teacher_tokenizers, strict=True)
    ]
    precision = precision_of(request.training)
    return CrossVocabularyTeachers(teachers, setup.weights, models.known_task, models.labels, loss_config, precision)


def teacher_source(
    request: DistillationRequest,
    setup: TeacherSetup,
    source: ItemSource,
    fitted_heads: Mapping[str, Any],
    was_cached: bool | None,
) -> tuple[ItemSource, Teacher]:
    """Select the source of teacher outputs.

    Args:
        request: with the cache, if there is one.
        setup: teachers and losses; teachers that are not run again are freed.
        source: the training data.
        fitted_heads: facts of fitted heads by the teacher's name; see `mlm_head`.
        was_cached: see `cached_in_memory`.

    Returns:
        the training data, with the outputs attached where they come from the cache; and the teacher.

    Raises:
        SqueezeError: the outputs cannot be stored.
        KeyboardInterrupt: Ctrl-C while the cache is filled.
    """
    models, loss_config = setup.models, setup.loss_config
    if models.cross_vocabulary:
        free_teachers(models)  # their outputs were computed when the data were read
        return source, CachedTeacher(loss_config.output_spec)
    if not loss_config.needs_teacher:
        read = "text" if models.task is None else "labels"
        note(f"none of the losses {', '.join(loss_config.weights)} needs a teacher: training on the {read} alone")
        free_teachers(models)
        return source, NoTeacher()
    if request.cache is None:
        teacher = _live_teacher(setup, teacher_precision_of(request.training))
        return source, _cached(request, setup, source, teacher, was_cached)
    hashes = [
        checkpoint_hash(checkpoint)
        + vocabulary_mark(model, checkpoint)
        + fitted_heads.get(checkpoint.name, {}).get("sha256", "")
        for model, checkpoint in zip(models.teachers, setup.checkpoints, strict=True)
    ]
    cache = open_teacher_cache(
        CacheRequest(
            hashes,
            setup.weights,
            loss_config,
            source,
            request.cache,
            request.training,
            maskings=request.maskings or 1,
            facts={"teacher": [checkpoint.name for checkpoint in setup.checkpoints]},
        )
    )
    if not cache.complete:
        fill_cache(cache, _live_teacher(setup, precision_of(request.training)))
    free_teachers(models)
    return cache.source, CachedTeacher(loss_config.output_spec)


def _cached(
    request: DistillationRequest,
    setup: TeacherSetup,
    source: ItemSource,
    teacher: LiveTeacher,
    was_cached: bool | None,
) -> LiveTeacher | MemoryCachedTeacher:
    """Keep the teacher's outputs on labelled examples in memory, where they can be divided by sequence.

    On a CPU alone: on a GPU it is not measured.
    """
    models, training, device = setup.models, request.training, own_device()
    is_divisible = not (
        models.reads_pairs
        or models.output_type.classes_are_positions
        or family_of(models.teachers[0].config).has_attention_bias
    )
    if not isinstance(source, Mixture) or not is_divisible or processes.count() > 1 or device.type != "cpu":
        return teacher
    per_epoch, steps = steps_of(
        training, BatchSchedule(source, training.batch_size, training.seed, 0).batches_per_epoch
    )
    with torch.autocast(device.type, torch.bfloat16, enabled=precision_of(training) == "bf16"):
        return cached_in_memory(teacher, source, training.batch_size, steps / per_epoch, was_cached=was_cached)


def _live_teacher(setup: TeacherSetup, precision: str) -> LiveTeacher:
    """Freeze the teachers and record what the losses read; their matrices are stored in bf16 or int8 if that is it."""
    loss_config, models = setup.loss_config, setup.models.teachers
    if precision == "bf16":
        for model in models:
            cast_products(model)
    replaced = [quantize_products(model) for model in models] if precision == "int8" else []
    if any(replaced):
        note("the teacher computes its matrix products in int8, faster here than fp32; --precision fp32 prevents it")
    kind = ShardedTeacher if processes.sharding() else LiveTeacher
    return kind(
        models,
        loss_config.output_spec,
        loss_config.teacher_parts,
        weights=setup.weights,
        temperature=loss_config.temperature,
    )
