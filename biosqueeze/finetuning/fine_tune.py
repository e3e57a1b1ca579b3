"""Fine-tune a checkpoint: encode the data, add a head for the task, train, and save model and tokenizer."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.data.lengths import fitting_length
from biosqueeze.finetuning.build import build_fine_tuner
from biosqueeze.finetuning.dev_evaluation import DevSet
from biosqueeze.finetuning.options import FineTuningOptions
from biosqueeze.models.custom_heads.encoder import HeadedEncoder, head_loss
from biosqueeze.models.custom_heads.load import (
    build_headed_encoder,
    custom_head_of,
    has_custom_head,
    note_dropped_head,
    set_score_range,
)
from biosqueeze.models.loading.load import load_model, load_tokenizer
from biosqueeze.models.verify import check_finite_parameters
from biosqueeze.system import processes
from biosqueeze.tasks import Dataset, Task
from biosqueeze.training.job import TrainingJob, TrainingSummary
from biosqueeze.training.loop import train
from biosqueeze.training.precision import precision_of
from biosqueeze.training.resuming.hashes import checkpoint_hash, source_hash
from biosqueeze.training.sources import Mixture


@dataclass(frozen=True)
class FineTuningInputs:
    """What a fine-tuning starts from, what selects its best checkpoint, and where it is written."""

    source: Checkpoint
    task: Task
    data: Dataset
    metric: str
    directory: Path
    may_keep_start: bool  # whether its own weights are the start, and dev was no part of their training


def fine_tune(options: FineTuningOptions, inputs: FineTuningInputs) -> tuple[TrainingSummary, int]:
    """Train, and save the model with the best dev score and its tokenizer to inputs.directory.

    Returns:
        the summary, and the length of the sequences: --max-length, or the model's positions if those are fewer.

    Raises:
        UsageError: an option does not fit the model or the task.
        SqueezeError: the training failed.
    """
    task, data = inputs.task, inputs.data
    tokenizer = load_tokenizer(inputs.source)
    model, has_trained_head = load_with_head(inputs.source, task, data, options.seed)
    check_finite_parameters(model.encoder if isinstance(model, HeadedEncoder) else model, inputs.source.name)
    length = fitting_length(options.max_length, tokenizer.model_max_length)
    windows = {name: task.encode(examples, data.labels, tokenizer, length) for name, examples in data.splits.items()}
    dev = DevSet(task, data.splits["dev"], windows["dev"], data.labels, tokenizer.pad_token_id)
    dev.warn_of_one_label()
    features = [window.features for window in windows["train"]]
    learner = build_fine_tuner(options, model, data.output_type, features, head_loss(model))
    train_source = Mixture(features, None, 0.0, tokenizer.pad_token_id)
    identity = {
        "checkpoint": checkpoint_hash(inputs.source),
        "data": source_hash(train_source),
        "dev": source_hash(dev.content),
        "labels": list(data.labels),
        "metric": inputs.metric,
        **task.formulation.non_defaults(),
    }
    summary = train(
        TrainingJob(
            title="fine-tune",
            learner=learner,
            source=train_source,
            options=options,
            directory=inputs.directory,
            evaluate=dev.evaluator(precision_of(options)),
            dev_sequences=len(dev.windows),
            keeps_better_start=has_trained_head and inputs.may_keep_start,
            metric=inputs.metric,
            identity=identity,
        )
    )
    if processes.is_main():
        if not summary.best.get(inputs.metric):
            dev.warn_of_no_entities(learner.model, precision_of(options))
        learner.model.save_pretrained(inputs.directory)
        tokenizer.save_pretrained(inputs.directory)
    return summary, length


def load_with_head(source: Checkpoint, task: Task, data: Dataset, seed: int) -> tuple[Any, bool]:
    """Load the checkpoint with a head for the task; an existing head for the same labels, or for spans, is kept.

    Args:
        source: with or without a head.
        task: whose formulation may need a custom head.
        data: whose labels the head gets.
        seed: of a new head's weights.

    Returns:
        the model, and whether the checkpoint had its head.
    """
    custom = custom_head_of(task.formulation)
    if custom:
        model = build_headed_encoder(source, custom, data.labels, seed)
        set_score_range(model, [example.gold for example in data.splits["train"]])
        return model, has_custom_head(source, custom, data.labels)
    note_dropped_head(source)
    problem_type = data.output_type.problem_type  # None replaces that of a former head
    loaded = load_model(source, task.HEAD, labels=data.labels or None, seed=seed, problem_type=problem_type)
    return loaded.model, loaded.has_head
