"""Fine-tune the student on the labelled data before distillation: see --warm-start."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from biosqueeze.distillation.models import DistillationModels
from biosqueeze.distillation.request import UNCOMPARED_ON_RESUME, DistillationRequest
from biosqueeze.distillation.training_data.datasets import TrainingData
from biosqueeze.files.saved_states import complete_states
from biosqueeze.finetuning.learner import FineTuner
from biosqueeze.progress import note
from biosqueeze.system import processes
from biosqueeze.training import trackers
from biosqueeze.training.job import TrainingJob
from biosqueeze.training.loop import train
from biosqueeze.training.metrics_log import METRICS_FILE
from biosqueeze.training.options import PLATEAU, TrainingOptions
from biosqueeze.training.precision import precision_of

FOLDER = "warm-start"
LOG = f"{FOLDER}.jsonl"


def warm_start(
    models: DistillationModels,
    data: TrainingData,
    request: DistillationRequest,
    identity: Mapping[str, Any],
    directory: Path,
) -> tuple[PreTrainedModel, TrainingOptions]:
    """Fine-tune the student on the labelled data, unless the distillation itself was already begun.

    Args:
        models: the student is trained in place.
        data: the training data.
        request: of the distillation, whose options those of the warm start differ from in length, and a plateau
            becomes a linear fall.
        identity: what must be unchanged to go on with a warm start, see `TrainingJob`.
        directory: the output; a folder in it holds the training states of the warm start until it is complete.

    Returns:
        the student, and the options of the distillation: they resume it only where it was begun.
    """
    training, epochs = request.training, request.warm_epochs
    begun = bool(training.resume and complete_states(directory))
    if epochs is None or begun or data.labelled is None:
        return models.student, training
    folder = directory / FOLDER
    if processes.is_main():  # the others may be here before it has made the directory
        folder.mkdir(exist_ok=True)
    resumed = bool(training.resume and complete_states(folder))
    learner = FineTuner(models.student, models.output_type)
    schedule = "linear" if training.schedule == PLATEAU else training.schedule
    summary = train(
        TrainingJob(
            title="warm start",
            identity=identity,
            uncompared=UNCOMPARED_ON_RESUME,
            learner=learner,
            source=data.labelled,
            options=replace(training, epochs=epochs, steps=None, hours=None, schedule=schedule, resume=resumed),
            directory=folder,
            evaluate=data.dev.evaluator(precision_of(training)) if data.dev else None,
            metric=models.metric,
        )
    )
    note(f"warm start: {models.metric} {summary.best[models.metric]:.4f} on dev, at step {summary.best_step}")
    return learner.model, replace(training, resume=False)


def keep_log(directory: Path) -> None:
    """Keep the metrics of a finished warm start and what its tracker wrote, and delete its training states."""
    if not processes.is_main():
        return
    folder = directory / FOLDER
    if (folder / METRICS_FILE).is_file():
        (folder / METRICS_FILE).replace(directory / LOG)
    if (folder / trackers.FOLDER).is_dir():
        (directory / trackers.FOLDER).mkdir(exist_ok=True)
        (folder / trackers.FOLDER).rename(directory / trackers.FOLDER / FOLDER)
    shutil.rmtree(folder, ignore_errors=True)
