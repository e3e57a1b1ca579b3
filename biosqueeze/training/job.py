"""What the loop is given, and what it gives back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

from biosqueeze.training.batches import BatchSchedule, ItemSource
from biosqueeze.training.learner import Learner
from biosqueeze.training.options import TrainingOptions


@dataclass(frozen=True)
class TrainingJob:
    """What the loop is given; `evaluate` scores the model on dev by `metric`, higher is better."""

    what: str
    learner: Learner  # its `model` is the trained one at the end
    source: ItemSource
    options: TrainingOptions
    directory: Path
    evaluate: Callable[[Any], dict[str, float]] | None = None
    metric: str = "f1"
    identity: Mapping[str, Any] = field(default_factory=dict)  # what else must be the same for --resume, as JSON
    maskings: int | None = None  # so many different maskings of each item, over and over; None is a new one each epoch

    def schedule(self, process: int, processes: int, *, total: int = 0, start: int = 0) -> BatchSchedule:
        """The batches of one of the processes."""
        options = self.options
        return BatchSchedule(
            self.source, options.batch_size, options.seed, total, start, process, processes, self.maskings
        )


def steps_of(options: TrainingOptions, batches_per_epoch: int) -> tuple[int, int]:
    """Optimiser steps in an epoch, rounded up, and in the whole run.

    A step may take batches of two epochs, so the whole is rounded once and not in each.
    """
    per_epoch = batches_per_epoch / options.accumulate
    return ceil(per_epoch), options.steps or max(1, round(options.epochs * per_epoch))


@dataclass
class TrainingSummary:
    """How a run ended."""

    steps: int
    tokens: int
    seconds: float
    precision: str
    device: str
    last: dict[str, float] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)
    best_step: int | None = None
    chosen: dict[str, int] = field(default_factory=dict)  # what no option says: processes, and what --auto-batch found

    def as_metrics(self) -> dict[str, Any]:
        """For the manifest."""
        speed = self.tokens / self.seconds if self.seconds else 0.0
        metrics: dict[str, Any] = {
            "steps": self.steps,
            "tokens": self.tokens,
            "seconds": round(self.seconds, 1),
        }
        metrics |= {"tokens_per_second": round(speed, 1), "compute": self.precision, "device": self.device}
        metrics |= {**self.chosen, "last_losses": {name: round(value, 6) for name, value in self.last.items()}}
        return metrics | ({"split": "dev", "best_step": self.best_step, **self.best} if self.best else {})
