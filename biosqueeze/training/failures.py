"""Detect what ends a training early (non-finite or exploding loss, out of memory), and advise what to change."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from biosqueeze.errors import SqueezeError
from biosqueeze.training.batches import Batch
from biosqueeze.training.job import TrainingJob
from biosqueeze.training.step import StepResult

WINDOW = 50  # steps in a running mean
EXPLOSION = 100.0  # a loss explodes above this multiple of the highest running mean


class TrainingError(SqueezeError):
    """A training failed; the message is the cause, and what can be done."""

    def __init__(self, cause: str, advice: str) -> None:
        super().__init__(f"{cause}; {advice}")
        self.cause = cause


@dataclass(frozen=True)
class Anomaly:
    """What is wrong with a step, and in which loss terms."""

    kind: str
    details: str


@dataclass
class LossMonitor:
    """Running means of the loss terms, to detect a loss that is far above its past means.

    A loss is compared with the highest mean and not with the last one: a model that fits its data well may meet a hard
    batch whose loss is a thousand times the current mean, and still below the loss at the start.
    """

    means: dict[str, float]
    highest: float = 0.0  # running mean of the whole loss so far
    steps: int = 0

    def anomaly(self, result: StepResult) -> Anomaly | None:
        """Return what is wrong with the values of a step, or None."""
        terms = {name: value for name, value in result.terms.items() if name != "loss"}
        broken = [name for name, value in terms.items() if not math.isfinite(value)]
        if broken or not math.isfinite(result.terms["loss"]):
            return Anomaly("the loss is NaN or infinite", ", ".join(broken) or "the sum of its terms")
        if not math.isfinite(result.gradient_norm):
            return Anomaly("the gradient is NaN or infinite", f"{', '.join(terms)}: still finite")
        if self._explodes(result):
            worst = max(terms, key=lambda name: terms[name] / max(self.means.get(name, 0.0), 1e-12))
            mean = self.means.get(worst, 0.0)
            return Anomaly("the loss explodes", f"{worst} is {terms[worst]:.4g}, after a mean of {mean:.4g}")
        return None

    def _explodes(self, result: StepResult) -> bool:
        return self.steps >= WINDOW and 0 < EXPLOSION * self.highest < result.terms["loss"]

    def update(self, terms: Mapping[str, float]) -> None:
        """Add the values of a step without an anomaly to the means."""
        self.steps += 1
        share = 1 / min(self.steps, WINDOW)
        for name, value in terms.items():
            mean = self.means.get(name, 0.0)
            self.means[name] = mean + share * (value - mean)
        self.highest = max(self.highest, self.means["loss"])


def describe_batches(batches: Sequence[Batch]) -> str:
    """Return size and length of the micro-batch that takes the most memory, in words."""
    shapes = [batch["input_ids"].shape for batch in batches if batch]
    rows, length = max(shapes, key=lambda shape: shape[0] * shape[1] ** 2, default=(1, 1))
    return f"{rows} sequences of {length} tokens" if rows > 1 else f"one sequence of {length} tokens"


def memory_advice(job: TrainingJob, step: int | None = None) -> str:
    """Return the options that need less memory, in words: for the same training, if there are any.

    Args:
        job: the training that ran out of memory.
        step: of the saved state, from which the same training can go on.
    """
    options = job.options
    ways = [f"{smaller} (the same training in smaller parts)"] if (smaller := _smaller_parts(job)) else []
    if not options.gradient_checkpointing and job.learner.model.supports_gradient_checkpointing:
        ways += ["--gradient-checkpointing"]
    if options.batch_size > 1 and not options.auto_batch and not job.long:
        ways += ["--auto-batch, which finds the size that fits"]
    if not ways:
        shorter = "a smaller --long-length or --max-length" if job.long else "a smaller --max-length"
        return shorter + (", and --force to start over with it" if step else "")
    return ", or ".join(ways) + (f" (with --resume it goes on from step {step})" if step else "")


def _smaller_parts(job: TrainingJob) -> str:
    """Return the options for smaller batches, of both lengths, that add up to the same steps; "" if there are none."""
    options = job.options
    sizes = [options.batch_size, *([job.long.batch_size] if job.long else [])]
    factor = _smallest_factor(*sizes)
    if factor == 1:
        return ""
    long = f" --long-batch-size {sizes[1] // factor}" if job.long else ""
    return f"--batch-size {options.batch_size // factor} --accumulate {options.accumulate * factor}{long}"


def next_smaller_batch(batch_size: int, accumulate: int) -> tuple[int, int]:
    """Return the next smaller batch size, half of it where it is even, and the accumulation for the same product."""
    factor = _smallest_factor(batch_size)
    return batch_size // factor, accumulate * factor


def _smallest_factor(*sizes: int) -> int:
    """Return the smallest number above 1 that divides all sizes; 1 if there is none."""
    common = math.gcd(*sizes)
    return next((factor for factor in range(2, common + 1) if common % factor == 0), 1)
