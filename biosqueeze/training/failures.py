"""What ends a training before its time, and what the user is told to do about it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from biosqueeze.errors import SqueezeError
from biosqueeze.training.batches import Batch
from biosqueeze.training.options import TrainingOptions
from biosqueeze.training.step import Measured

WINDOW = 50  # steps that a running mean looks back
EXPLOSION = 100.0  # times the highest running mean so far


class TrainingError(SqueezeError):
    """A training went wrong; its message is the cause, and what can be done."""

    def __init__(self, cause: str, advice: str) -> None:
        super().__init__(f"{cause}; {advice}")
        self.cause = cause


@dataclass(frozen=True)
class Trouble:
    """What is wrong with a step, and where."""

    what: str
    where: str


@dataclass
class Watch:
    """Running means of the terms. A loss explodes where it is far above all that its mean has been.

    The highest mean counts and not the last one: a model that has learned its data well may meet a hard batch whose
    loss is a thousand times the mean, and still below what it started from.
    """

    means: dict[str, float]
    highest: float = 0.0  # of the means of the whole loss
    seen: int = 0

    def trouble(self, measured: Measured) -> Trouble | None:
        """What is wrong with the values of a step; None is nothing."""
        terms = {name: value for name, value in measured.terms.items() if name != "loss"}
        broken = [name for name, value in terms.items() if not math.isfinite(value)]
        if broken or not math.isfinite(measured.terms["loss"]):
            return Trouble("the loss is no number any more", ", ".join(broken) or "the sum of its terms")
        if not math.isfinite(measured.gradient):
            return Trouble("the gradient is no number any more", f"{', '.join(terms)} still are")
        if self._explodes(measured):
            worst = max(terms, key=lambda name: terms[name] / max(self.means.get(name, 0.0), 1e-12))
            mean = self.means.get(worst, 0.0)
            return Trouble("the loss explodes", f"{worst} is {terms[worst]:.4g}, after a mean of {mean:.4g}")
        return None

    def _explodes(self, measured: Measured) -> bool:
        return self.seen >= WINDOW and 0 < EXPLOSION * self.highest < measured.terms["loss"]

    def note(self, terms: Mapping[str, float]) -> None:
        """Take the values of a good step into the means."""
        self.seen += 1
        share = 1 / min(self.seen, WINDOW)
        for name, value in terms.items():
            mean = self.means.get(name, 0.0)
            self.means[name] = mean + share * (value - mean)
        self.highest = max(self.highest, self.means["loss"])


def describe(batches: Sequence[Batch]) -> str:
    """Size and length of the widest micro-batch."""
    shapes = [batch["input_ids"].shape for batch in batches if batch]
    rows, length = max(shapes, key=lambda shape: shape[0] * shape[1] ** 2, default=(1, 1))
    return f"{rows} sequences of {length} tokens" if rows > 1 else f"one sequence of {length} tokens"


def ways_out_of_memory(options: TrainingOptions) -> str:
    """The options that need less memory for the same training."""
    ways = []
    if options.batch_size > 1:
        size, accumulate = smaller(options.batch_size, options.accumulate)
        ways += [f"--batch-size {size} --accumulate {accumulate} (the same training in smaller parts)"]
    if not options.gradient_checkpointing:
        ways += ["--gradient-checkpointing"]
    if options.batch_size > 1 and not options.auto_batch:
        ways += ["--auto-batch, which finds the size that fits"]
    return ", or ".join(ways or ["a smaller --max-length"])


def smaller(batch_size: int, accumulate: int) -> tuple[int, int]:
    """The next smaller batch whose multiple is the same global batch: half of it where it is even."""
    factor = next(f for f in range(2, batch_size + 1) if batch_size % f == 0)
    return batch_size // factor, accumulate * factor
