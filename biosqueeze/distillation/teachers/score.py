"""The teacher's score on dev: what the student's is compared with, and from which on less patience is enough."""

from collections.abc import Mapping
from pathlib import Path

from biosqueeze.distillation.models import DistillationModels
from biosqueeze.distillation.request import DistillationRequest
from biosqueeze.files import content_hash
from biosqueeze.finetuning.dev_evaluation import DevSet
from biosqueeze.models.device import own_device
from biosqueeze.progress import note
from biosqueeze.system import processes
from biosqueeze.training.precision import precision_of


def teacher_score(request: DistillationRequest, models: DistillationModels, dev: DevSet | None) -> float | None:
    """Say and return the first teacher's score on the dev split: the recorded one, or else evaluate the teacher.

    It is None without a dev split, and where nothing is recorded of a teacher with another vocabulary or in one of
    several processes, whose scores would differ in the last digits.
    """
    if dev is None:
        return None
    score = recorded_score(request, models)
    if score is None and processes.count() == 1 and not models.cross_vocabulary:
        model = models.teachers[0].to(own_device())
        score = dev.evaluator(precision_of(request.training))(model)[models.metric]
    if score is not None:
        note(f"teacher: dev {models.metric} {score:.4f}")
    return score


def recorded_score(request: DistillationRequest, models: DistillationModels) -> float | None:
    """Return the score of the first teacher's fine-tuning; None if its dev split was another, or read otherwise."""
    data, teacher = request.data, request.models.teachers[0]
    manifest, task = teacher.manifest, teacher.task
    if manifest is None or manifest.stage != "finetune" or task is None or not manifest.history:
        return None
    made = manifest.history[-1].options
    recorded = (task.data, task.max_length, dict(task.formulation), made.get("with_dev", False))
    asked = (data.data, models.length, models.known_task.formulation.non_defaults(), False)
    held_out = (made.get("dev_share"), made.get("seed") if made.get("dev_share") else None)
    share = (data.dev_share, data.seed if data.dev_share else None)
    if (recorded, held_out) != (asked, share) or not _has_content(str(data.data), manifest.history[-1].inputs):
        return None
    score = manifest.metrics.get(models.metric)
    return score if isinstance(score, float) else None


def _has_content(data: str, inputs: Mapping[str, str]) -> bool:
    """Return whether the data are those whose hash was recorded, if it was: a relative path may name other files."""
    return "data" not in inputs or content_hash(Path(data).expanduser()) == inputs["data"]
