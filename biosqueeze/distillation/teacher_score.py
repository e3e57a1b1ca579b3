"""The teacher's score on dev: what the student's is compared with, and from which on less patience is enough."""

from biosqueeze import processes
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.distillation.models import DistillationModels
from biosqueeze.distillation.request import DistillationRequest
from biosqueeze.finetuning.dev_evaluation import DevSet
from biosqueeze.models.device import own_device
from biosqueeze.progress import note
from biosqueeze.training.precision import precision_of


def teacher_score(request: DistillationRequest, models: DistillationModels, dev: DevSet | None) -> float | None:
    """Say and return the first teacher's score on the dev split: the recorded one, or else evaluate the teacher.

    It is None without labelled data, and where nothing is recorded of a teacher with another vocabulary or in one of
    several processes, whose scores would differ in the last digits.
    """
    if dev is None:
        return None
    data, teacher = request.data, request.models.teachers[0]
    seed = request.training.seed if data.dev_share else None
    score = recorded_score(teacher, models.metric, str(data.data), data.dev_share, seed)
    if score is None and processes.count() == 1 and not models.cross_vocabulary:
        model = models.teachers[0].to(own_device())
        score = dev.evaluator(precision_of(request.training))(model)[models.metric]
    if score is not None:
        note(f"teacher: dev {models.metric} {score:.4f}")
    return score


def recorded_score(
    teacher: Checkpoint, metric: str, data: str, dev_share: float | None, seed: int | None
) -> float | None:
    """Return the score that a teacher's fine-tuning reached on a dev split; None if it was not on the same one.

    Args:
        teacher: any checkpoint.
        metric: the score.
        data: --data.
        dev_share: --dev-share; None for the data's own dev split.
        seed: by which that share is drawn; None without one.
    """
    manifest = teacher.manifest
    if manifest is None or manifest.stage != "finetune" or teacher.task is None or not manifest.history:
        return None
    made = manifest.history[-1].options
    held_out = (made.get("dev_share"), made.get("seed") if made.get("dev_share") else None)
    score = manifest.metrics.get(metric)
    is_same = held_out == (dev_share, seed) and teacher.task.data == data and not made.get("with_dev")
    return score if is_same and isinstance(score, float) else None
