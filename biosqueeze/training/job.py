"""The input of the training loop (`TrainingJob`) and its result (`TrainingSummary`)."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from threading import Event
from typing import Any, Protocol

from biosqueeze.training.batches import BatchSchedule, ItemSource
from biosqueeze.training.learner import Learner
from biosqueeze.training.options import TrainingOptions


@dataclass(frozen=True)
class LongPhase:
    """The last part of a training, on longer sequences."""

    source: ItemSource
    batch_size: int  # of one process
    share: float  # of the optimiser steps

    def steps_of(self, total: int) -> int:
        """Return its number of steps, at least one."""
        return max(1, round(total * self.share))


class Probe(Protocol):
    """Scores of the model that take far longer than an evaluation, at a few steps."""

    def check(self, total: int) -> None:
        """Refuse steps that the whole run has not."""

    def is_due(self, step: int, total: int) -> bool:
        """Return whether the model is scored after a step of the whole run."""

    def scores(self, step: int, interrupt: Event) -> dict[str, float] | None:
        """Compute the scores, in the main process, without any effect on the training; None where interrupted."""


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
    dev_sequences: int = 0  # that `evaluate` reads
    keeps_better_start: bool = (
        False  # whether the weights before the first step are kept if no later ones score as high
    )
    metric: str | None = "f1"
    goal: float | None = None  # the score from which on a plateau needs less patience, such as a teacher's
    identity: Mapping[str, Any] = field(default_factory=dict)  # what must be equal on --resume, see `fingerprint_of`
    uncompared: Collection[str] = ()  # options that may differ on --resume, see `fingerprint_of`
    maskings: int | None = None  # epochs after which the random features of an item repeat; None: they never do
    long: LongPhase | None = None
    probe: Probe | None = None
    sharded: bool = False  # parameters and optimiser states are divided over the processes, see `ShardedLearner`

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

    def phases(self, process: int, processes: int, *, steps: int, start: int) -> Iterator[BatchSchedule]:
        """Yield the batches that are left to one of the processes, by their sequence length.

        Args:
            process: its number.
            processes: how many there are.
            steps: of the optimiser, in the whole run.
            start: the steps that were taken already.
        """
        size, whole = self.options.accumulate, self.schedule(process, processes)
        border = steps - self.long.steps_of(steps) if self.long else steps
        if start < border:
            yield replace(whole, total=border * size, start=start * size, done_to=border / steps)
        if self.long:
            yield replace(
                whole,
                source=self.long.source,
                batch_size=self.long.batch_size,
                total=(steps - border) * size,
                start=max(0, start - border) * size,
                done_from=border / steps,
            )


def steps_of(options: TrainingOptions, batches_per_epoch: int) -> tuple[int, int]:
    """Return the number of optimiser steps in an epoch, rounded up, and in the whole run, at most.

    A step may take batches of two epochs, so the number for the whole run is rounded once and not in each epoch.
    """
    per_epoch = batches_per_epoch / options.accumulate
    return ceil(per_epoch), options.most_steps or max(1, round(options.epochs * per_epoch))


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
    best_step: int | None = None  # 0: the weights before the training
    is_mean_with_start: bool = False  # the mean of the weights before the training and the last is kept
    start_score: float | None = None  # on dev before the training, if its weights could be kept
    falls_from: int | None = None  # the step from which the learning rate of a plateau fell
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
        if self.start_score is not None:
            metrics["start_score"] = round(self.start_score, 6)
        if self.is_mean_with_start:
            metrics["mean_with_start"] = True
        if self.falls_from is not None:
            metrics["rate_falls_from"] = self.falls_from
        if self.held_out:
            metrics["held_out"] = {name: round(value, 6) for name, value in self.held_out.items()}
        return metrics | ({"split": "dev", "best_step": self.best_step, **self.best} if self.best else {})
