"""Who answers for the teachers of a training: they themselves, or what they said when they were asked beforehand."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from biosqueeze import processes
from biosqueeze.backends.torch import cast_products
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.distillation.cross_vocabulary import CrossVocabularyTeachers, Reader, check_foreign
from biosqueeze.distillation.loss_config import LossConfig
from biosqueeze.distillation.models import DistillationModels, dismiss_teachers
from biosqueeze.distillation.options import DistillationOptions
from biosqueeze.distillation.teacher_cache.fill import ask
from biosqueeze.distillation.teacher_cache.plan import CacheRequest, open_answers
from biosqueeze.distillation.teachers import CachedTeacher, LiveTeacher, NoTeacher, Teacher
from biosqueeze.errors import UsageError
from biosqueeze.progress import note
from biosqueeze.training.batches import ItemSource
from biosqueeze.training.hashes import checkpoint_hash
from biosqueeze.training.precision import precision_of


@dataclass(frozen=True)
class TeacherSetup:
    """The teachers of a student, and what they are asked for."""

    pairing: DistillationModels
    recipe: LossConfig
    checkpoints: tuple[Checkpoint, ...]  # of the teachers
    shares: tuple[float, ...]  # how much each counts


def refuse_idle_sharding(options: DistillationOptions, faculty: TeacherSetup) -> None:
    """--use_fsdp of the launcher is not ignored in silence.

    Raises:
        UsageError: nobody is asked while the student trains, or each process asks for itself.
    """
    live = faculty.recipe.needs_teacher and not (faculty.pairing.foreign or options.cache_teacher)
    # A try of --auto-batch that fails in one process would leave the others waiting for its part of the weights.
    if processes.sharding() and (options.fit_head or options.auto_batch or not live):
        raise UsageError(
            "--use_fsdp shards a teacher that all processes ask while the student trains; with --fit-head, "
            "--auto-batch, --cache-teacher, a teacher of another vocabulary, or losses that need none, launch without "
            "it"
        )


def foreigners_of(options: DistillationOptions, faculty: TeacherSetup, student: str) -> CrossVocabularyTeachers | None:
    """The teachers, where they read other tokens than the student, to be asked about whatever is read.

    Args:
        options: of the stage.
        faculty: who teaches what.
        student: its name.

    Raises:
        UsageError: a loss or an option needs tokens that both know.
    """
    pairing, recipe = faculty.pairing, faculty.recipe
    if not pairing.foreign:
        return None
    check_foreign(recipe, pairing.output_type, student, faculty.checkpoints[0].name)
    if options.cache_teacher:
        raise UsageError(
            "--cache-teacher keeps what is said of tokens, and teacher and student do not share them; leave it out: "
            "the teacher is asked once, before the training"
        )
    readers = [
        Reader(model, tokenizer, min(options.max_length, tokenizer.model_max_length))
        for model, tokenizer in zip(pairing.teachers, pairing.readers, strict=True)
    ]
    if pairing.task is None:
        raise ValueError("there is no task without a teacher that has one")
    return CrossVocabularyTeachers(readers, faculty.shares, pairing.task, pairing.labels, recipe, precision_of(options))


def teacher_source(
    options: DistillationOptions, faculty: TeacherSetup, source: ItemSource, fitted: Mapping[str, Any]
) -> tuple[ItemSource, Teacher]:
    """The training data, and who answers.

    Args:
        options: of the stage.
        faculty: who teaches what; teachers that nobody will ask any more are dismissed.
        source: the data.
        fitted: facts of heads that were fitted, by the teacher's name; see `fit_head`.

    Raises:
        SqueezeError: what was said cannot be kept.
        KeyboardInterrupt: Ctrl-C while the teachers are asked.
    """
    pairing, recipe = faculty.pairing, faculty.recipe
    if pairing.foreign:
        dismiss_teachers(pairing)  # they were asked about everything when the data were read
        return source, CachedTeacher(recipe.question)
    if not recipe.needs_teacher:
        note(f"nothing of {', '.join(recipe.weights)} needs a teacher: the student learns from the text alone")
        dismiss_teachers(pairing)
        return source, NoTeacher()
    if not options.cache_teacher:
        return source, _live(options, faculty)
    hashes = [checkpoint_hash(t) + fitted.get(t.name, {}).get("sha256", "") for t in faculty.checkpoints]
    named = {"teacher": [teacher.name for teacher in faculty.checkpoints]}
    answers = open_answers(CacheRequest(hashes, faculty.shares, recipe, source, options, named))
    if not answers.complete:
        ask(answers, _live(options, faculty))
    dismiss_teachers(pairing)
    return answers.source, CachedTeacher(recipe.question)


def _live(options: DistillationOptions, faculty: TeacherSetup) -> LiveTeacher:
    """The teachers, frozen and asked for what the recipe reads; in bf16 their matrices are held so."""
    recipe, models = faculty.recipe, faculty.pairing.teachers
    if precision_of(options) == "bf16":
        for model in models:
            cast_products(model)
    return LiveTeacher(
        models,
        recipe.question,
        recipe.wanted(1),
        weights=faculty.shares,
        temperature=recipe.temperature,
        sharded=processes.sharding(),
    )
