"""Score a fine-tuned checkpoint on one split of a labelled data set, and compare the scores with floors."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from biosqueeze import registry
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import QualityGateMissedError, SqueezeError, UsageError
from biosqueeze.finetuning.finetuned_checkpoint import check_head
from biosqueeze.finetuning.task_model import InferenceSettings, load_task_model
from biosqueeze.progress import note
from biosqueeze.tasks import Dataset, Task


@dataclass(frozen=True, kw_only=True)
class EvaluationRequest:
    """What is scored, on which data, and how."""

    checkpoint: Checkpoint
    """Fine-tuned on the task."""
    kind: str
    """Of the task."""
    task: Task
    data: str
    """Directory or benchmark."""
    split: str
    inference: InferenceSettings
    floors: Mapping[str, float]
    """Least score by metric."""

    def read(self) -> Dataset:
        """Read the split."""
        return self.task.read(self.data, (self.split,))


def evaluate_checkpoint(request: EvaluationRequest) -> dict[str, Any]:
    """Return the result of an evaluation, with the scores under "metrics".

    Raises:
        SqueezeError: the checkpoint is not fine-tuned on this task, or the data have labels that it lacks.
        UsageError: a floor names no metric of the task.
    """
    task = request.task
    check_head(request.checkpoint, task.HEAD, request.kind, "to score")
    dataset = request.read()
    _check_labels(request.checkpoint, dataset, request.data)
    examples = dataset.splits[request.split]
    gold = [example.gold for example in examples]
    _check_metrics(request.floors, tuple(task.score(gold, gold)))
    started = time.monotonic()
    model = load_task_model(request.checkpoint, task, request.inference)
    return {
        "task": request.kind,
        "data": request.data,
        "split": request.split,
        "backend": request.inference.backend,
        "metrics": task.score(gold, model.predict(examples)),
        "examples": len(gold),
        "max_length": model.max_length,
        "seconds": round(time.monotonic() - started, 3),
    }


def _check_labels(checkpoint: Checkpoint, dataset: Dataset, source: str) -> None:
    """Check that every label of the data is one of the checkpoint's, whose ids are used.

    Raises:
        SqueezeError: a label is not.
    """
    unknown = [label for label in dataset.labels if label not in checkpoint.labels]
    if unknown:
        raise SqueezeError(
            f"{source} has the labels {', '.join(unknown)}, but {checkpoint.name} has only "
            f"{', '.join(checkpoint.labels)}; evaluate on the data that it was fine-tuned on, or fine-tune it on these"
        )


def _check_metrics(floors: Mapping[str, float], metrics: Sequence[str]) -> None:
    for name in floors:
        if name not in metrics:
            raise UsageError(
                f"--min: there is no metric {name!r}.{registry.closest(name, metrics)} Known: {', '.join(metrics)}"
            )


def check_floors(name: str, floors: Mapping[str, float], metrics: Mapping[str, float]) -> None:
    """Compare the metrics of a checkpoint of this name with their floors.

    Raises:
        QualityGateMissedError: a score is below its floor.
    """
    missed = [
        f"{metric} {metrics[metric]:.4f} is below {floor:g}"
        for metric, floor in floors.items()
        if metrics[metric] < floor
    ]
    if missed:
        raise QualityGateMissedError(
            f"{name}: {', '.join(missed)}; train longer or squeeze less, or lower the floor given with --min"
        )
    if floors:
        reached = ", ".join(f"{metric} >= {floor:g}" for metric, floor in floors.items())
        note(f"{name}: every floor is reached ({reached})")
