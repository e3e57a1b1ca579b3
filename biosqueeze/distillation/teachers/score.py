"""The teacher's score on dev: what the student's is compared with, and from which on less patience is enough."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.distillation.models import DistillationModels
from biosqueeze.distillation.request import DataSettings, DistillationRequest
from biosqueeze.finetuning.dev_evaluation import DevSet
from biosqueeze.manifest import HistoryEntry
from biosqueeze.models.device import own_device
from biosqueeze.progress import note, warn
from biosqueeze.system import processes
from biosqueeze.training.precision import precision_of
from biosqueeze.training.resuming.finished import input_hash


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
        _warn_of_known_examples(request)
    return score


def _warn_of_known_examples(request: DistillationRequest) -> None:
    """Warn where the first teacher, or what it was cut from, was trained on examples of the dev split."""
    data, teacher = request.data, request.models.teachers[0]
    entry = next((entry for entry in reversed(teacher.history) if entry.stage == "finetune"), None)
    if entry is None or entry.options.get("data") != data.data:
        return
    made, known = entry.options, bool(entry.options.get("with_dev"))
    differs = data.dev_share is not None and _held_out(made) != _held_out_here(data)
    if not (known or differs) or not _is_unchanged(str(data.data), entry.inputs):
        return
    way = "leave --dev-share out"
    if held_out := _held_out(made):
        way = f"give --dev-share {held_out[0]:g} --seed {held_out[1]}, as in its fine-tuning"
    if known:
        way = "compare the two on the test split"
    warn(f"{teacher.name} was trained on examples of this dev split, so its score there is too high; {way}")


def recorded_score(request: DistillationRequest, models: DistillationModels) -> float | None:
    """Return the score of the first teacher's fine-tuning; None if its dev split was another, or read otherwise."""
    data, teacher = request.data, request.models.teachers[0]
    entry, manifest, task = _fine_tuning(teacher), teacher.manifest, teacher.task
    if entry is None or manifest is None or task is None:
        return None
    made = entry.options
    recorded = (task.data, task.max_length, dict(task.formulation), made.get("with_dev", False), _held_out(made))
    formulation = models.known_task.formulation.non_defaults()
    requested = (data.data, models.length, formulation, False, _held_out_here(data))
    if recorded != requested or not _is_unchanged(str(data.data), entry.inputs):
        return None
    score = manifest.metrics.get(models.metric)
    return score if isinstance(score, float) else None


def _fine_tuning(teacher: Checkpoint) -> HistoryEntry | None:
    """Return the record of the fine-tuning of a teacher, if that was the last stage."""
    manifest = teacher.manifest
    return manifest.history[-1] if manifest and manifest.stage == "finetune" and manifest.history else None


def _held_out(made: Mapping[str, Any]) -> tuple[float, int] | None:
    """Return --dev-share and the seed of a fine-tuning, if it held out examples of train."""
    return (made["dev_share"], made["seed"]) if made.get("dev_share") else None


def _held_out_here(data: DataSettings) -> tuple[float, int] | None:
    return (data.dev_share, data.seed) if data.dev_share else None


def _is_unchanged(data: str, inputs: Mapping[str, str]) -> bool:
    """Return whether the data are those whose hash was recorded, if it was: a relative path may name other files."""
    return "data" not in inputs or input_hash(Path(data).expanduser()) == inputs["data"]
