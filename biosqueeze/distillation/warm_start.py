"""Before a student is taught by its teacher it may learn the labels on its own: see --warm-start."""

import shutil
from dataclasses import replace
from pathlib import Path

from transformers import PreTrainedModel

from biosqueeze import processes
from biosqueeze.distillation.datasets import TrainingData
from biosqueeze.distillation.models import DistillationModels
from biosqueeze.distillation.options import DistillationOptions
from biosqueeze.finetuning.learner import FineTuner
from biosqueeze.output import STATE_GLOB
from biosqueeze.progress import note
from biosqueeze.training.loop import METRICS_FILE, TrainingJob, precision_of, train

FOLDER = "warm-start"
LOG = f"{FOLDER}.jsonl"


def warm_start(
    options: DistillationOptions, pairing: DistillationModels, lessons: TrainingData, directory: Path
) -> tuple[PreTrainedModel, DistillationOptions]:
    """Fine-tune the student on the labelled data, if that is asked for and was not done before an interruption.

    Args:
        options: of the stage.
        pairing: whose student is trained in place.
        lessons: with labelled data.
        directory: of the output; a folder in it has the states of this training while it lasts.

    Returns:
        the student, and the options for what comes after: they resume only what was begun.
    """
    begun = any(directory.glob(STATE_GLOB))
    if options.warm_start == "none" or begun or lessons.labelled is None:
        return pairing.student, options
    folder = directory / FOLDER
    folder.mkdir(exist_ok=True)
    resumed = options.resume and any(folder.glob(STATE_GLOB))
    own = replace(options, epochs=options.warm_epochs, steps=None, resume=resumed)
    learner = FineTuner(pairing.student, pairing.output_type)
    summary = train(
        TrainingJob(
            title="warm start",
            learner=learner,
            source=lessons.labelled,
            uncompared=("checkpoint", "teacher", "data", "corpus", "cache_teacher"),
            options=own,
            directory=folder,
            evaluate=lessons.judge(precision_of(options)),
            metric=pairing.metric,
        )
    )
    note(f"warm start: {pairing.metric} {summary.best[pairing.metric]:.4f} on dev, at step {summary.best_step}")
    return learner.model, replace(options, resume=False)


def keep_log(directory: Path) -> None:
    """Keep the metrics of a warm start and drop its states, when all is done."""
    if not processes.is_main():
        return
    folder = directory / FOLDER
    if (folder / METRICS_FILE).is_file():
        (folder / METRICS_FILE).replace(directory / LOG)
    shutil.rmtree(folder, ignore_errors=True)
