"""The input of the training loop (`TrainingJob`) and its result (`TrainingSummary`)."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

from biosqueeze.training.batches import BatchSchedule, ItemSource
from biosqueeze.training.learner import Learner
from biosqueeze.training.options import TrainingOptions


@dataclass(frozen=True)
class TrainingJob:
    """Everything that the training loop needs.

    `evaluate` computes scores of the model on the dev split; the weights with the highest score of the name `metric`
    are kept. Without `metric` the scores are logged, and the last weights are kept.
    """

    title: str  # of the progress bar
    learner: Learner  # its `model` has the trained weights at the end
    source: ItemSource
    options: TrainingOptions
    directory: Path  # of training states and metrics.jsonl
    evaluate: Callable[[Any], dict[str, float]] | None = None
    metric: str | None = "f1"
    identity: Mapping[str, Any] = field(default_factory=dict)  # what must be equal on --resume, see `fingerprint_of`
    uncompared: Collection[str] = ()  # options that may differ on --resume, see `fingerprint_of`
    maskings: int | None = None  # epochs after which the random features of an item repeat; None: they never do

    def schedule(self, process: int, processes: int, *, total: int = 0, start: int = 0) -> BatchSchedule:
        """Return the batches of one of the processes."""
        return BatchSchedule(
            self.source,
            self.options.batch_size,
            self.options.seed,
            total,
            start,
            process,
            processes,
            self.maskings,
        )


def steps_of(options: TrainingOptions, batches_per_epoch: int) -> tuple[int, int]:
    """Return the number of optimiser steps in an epoch, rounded up, and in the whole run.

    A step may take batches of two epochs, so the number for the whole run is rounded once and not in each epoch.
    """
    per_epoch = batches_per_epoch / options.accumulate
    return ceil(per_epoch), options.steps or max(1, round(options.epochs * per_epoch))


@dataclass
class TrainingSummary:
    """Steps, speed, losses and best dev scores of a finished training."""

    steps: int
    tokens: int
    seconds: float
    precision: str
    device: str
    last: dict[str, float] = field(default_factory=dict)  # loss terms of the last step
    best: dict[str, float] = field(default_factory=dict)  # dev scores of the best evaluation
    best_step: int | None = None
    held_out: dict[str, float] = field(default_factory=dict)  # scores of the last evaluation, where none is the best
    chosen: dict[str, int] = field(default_factory=dict)  # number of processes, and batch size of --auto-batch

    def as_metrics(self) -> dict[str, Any]:
        """Return the values for the manifest."""
        speed = self.tokens / self.seconds if self.seconds else 0.0
        metrics: dict[str, Any] = {
            "steps": self.steps,
            "tokens": self.tokens,
            "seconds": round(self.seconds, 1),
        }
        metrics |= {"tokens_per_second": round(speed, 1), "compute": self.precision, "device": self.device}
        metrics |= {**self.chosen, "last_losses": {name: round(value, 6) for name, value in self.last.items()}}
        if self.held_out:
            metrics["held_out"] = {name: round(value, 6) for name, value in self.held_out.items()}
        return metrics | ({"split": "dev", "best_step": self.best_step, **self.best} if self.best else {})
