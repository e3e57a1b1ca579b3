"""The learning rate at each step, and the number of steps where that is found during the training."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from biosqueeze.training.options import (
    PLATEAU_EVAL_EPOCHS,
    PLATEAU_EVAL_EVERY,
    PLATEAU_EVAL_EVERY_LONG,
    PLATEAU_EVAL_TOKENS,
    PLATEAU_GOAL_SHARE_LONG,
    PLATEAU_PATIENCE,
    PLATEAU_PATIENCE_AT_GOAL,
    TrainingOptions,
)

_DECAY = 0.1  # share of the steps, at the end, in which the rate of `wsd` falls
_FALL = 0.25  # steps in which the rate of `plateau` falls, per step before
_WARM_UP_STEPS = 1_000  # of `plateau`, on whose number of steps --warmup cannot depend


class FixedSchedule:
    """A learning rate over a number of steps that is known beforehand."""

    def __init__(self, total: int, options: TrainingOptions) -> None:
        self.total = total
        self._factor = warm_up_and_decay(total, options.warmup, options.schedule)

    def factor(self, step: int) -> float:
        """Return the share of the peak rate at a step, from 0."""
        return self._factor(step)


class PlateauSchedule:
    """A constant rate for as long as dev scores rise, and a linear fall to 0 before a limit that they do not reach.

    Hu et al. 2024 (MiniCPM, section 4.2) and Haegele et al. 2024 (section 3): a constant rate with a fall over the last
    fifth of the steps reaches what a schedule of a length known beforehand reaches. Where dev scores have stopped
    rising, a fall brings nothing to the mean of the weights that is scored, so the training ends.
    """

    share_before_fall = 1 / (1 + _FALL)  # of all steps

    def __init__(self, most: int, options: TrainingOptions) -> None:
        """Begin with the rise.

        Args:
            most: steps, at most.
            options: of the training; --warmup is a share of the first 1,000 steps.
        """
        self.most = most
        self.rising = max(1, round(min(most, _WARM_UP_STEPS) * options.warmup))
        self.falls_from: int | None = None

    @property
    def total(self) -> int:
        """The steps of the training: the most, until the rate falls."""
        if self.falls_from is None:
            return self.most
        return min(self.most, self.falls_from + max(1, round(self.falls_from * _FALL)))

    @property
    def latest_fall(self) -> int:
        """The step after which the rate has to fall for the training to end with the last step."""
        return math.ceil(self.most * self.share_before_fall)

    def factor(self, step: int) -> float:
        """Return the share of the peak rate at a step, from 0."""
        if self.falls_from is None or step < self.falls_from:
            return min(1.0, (step + 1) / self.rising)
        highest = min(1.0, (self.falls_from + 1) / self.rising)  # below 1 where the warm-up has not ended
        return highest * max(0.0, (self.total - step) / (self.total - self.falls_from))


@dataclass(frozen=True)
class PlateauEvaluations:
    """How often `plateau` evaluates on dev, and how many evaluations in a row without a better score end it."""

    every: int  # steps between two evaluations
    patience: int  # evaluations
    patience_at_goal: int  # the same, once the goal is reached
    goal_share: float  # of the goal, which is enough

    def patience_at(self, best: float | None, goal: float | None) -> int:
        """Return how many evaluations without a better score than the best so far are enough."""
        is_reached = best is not None and goal is not None and best >= self.goal_share * goal
        return self.patience_at_goal if is_reached else self.patience


def evaluations_of_plateau(
    options: TrainingOptions, per_epoch: int, *, dev_sequences: int, tokens: float
) -> PlateauEvaluations:
    """Return how often to evaluate, and the patience.

    The interval is shorter where a step takes long, on long sequences, and with few training examples, where the best
    score comes within the first steps; with few it is not made shorter than an evaluation has batches of the size of a
    step, however the steps are split. With few examples more evaluations have to be without a better score, for as many
    steps as with many, because the noise of dev scores is larger than their rise from one evaluation to the next. Of
    long sequences, whose steps take the most time, a part of the goal is enough.

    Args:
        options: of the training; its eval_every and its patience override the defaults.
        per_epoch: steps of an epoch.
        dev_sequences: sequences of the dev split.
        tokens: of a step.
    """
    of_many = min(PLATEAU_EVAL_EVERY, max(PLATEAU_EVAL_EVERY_LONG, round(PLATEAU_EVAL_TOKENS / tokens)))
    of_few = max(PLATEAU_EVAL_EPOCHS * per_epoch, math.ceil(dev_sequences / (options.batch_size * options.accumulate)))
    every = options.eval_every or min(of_many, of_few)
    as_many_steps = math.ceil(PLATEAU_PATIENCE_AT_GOAL * of_many / every)
    patience, at_goal = (
        options.patience or max(least, as_many_steps) for least in (PLATEAU_PATIENCE, PLATEAU_PATIENCE_AT_GOAL)
    )
    goal_share = PLATEAU_GOAL_SHARE_LONG if of_many == PLATEAU_EVAL_EVERY_LONG else 1.0
    return PlateauEvaluations(every, patience, at_goal, goal_share)


def warm_up_and_decay(total: int, warmup: float, schedule: str) -> Callable[[int], float]:
    """Return the factor of the learning rate at a step: linear from 0 to 1 over the warm-up, then down to 0.

    Args:
        total: steps of the training.
        warmup: share of them.
        schedule: "linear"; "cosine", half a period of it (Loshchilov and Hutter 2017, equation 5); or "wsd",
            warm-up, stable, decay: 1 until the last tenth of the steps, then linear (Hu et al. 2024, MiniCPM, section
            4.2, with the linear decay of Haegele et al. 2024, section 3).
    """
    rising = max(1, round(total * warmup))
    falling = _FALLING[schedule]

    def factor(step: int) -> float:
        if step < rising:
            return (step + 1) / rising
        return falling(max(0.0, (total - step) / max(1, total - rising)), (total - step) / total)

    return factor


# The factor after the warm-up, from the shares that are left of the steps after the warm-up and of all steps.
_FALLING: Mapping[str, Callable[[float, float], float]] = {
    "linear": lambda after_warmup, _of_all: after_warmup,
    "cosine": lambda after_warmup, _of_all: (1 - math.cos(math.pi * after_warmup)) / 2,
    "wsd": lambda _after_warmup, of_all: max(0.0, min(1.0, of_all / _DECAY)),
}


def set_rates(schedule: LambdaLR, rates: Sequence[float | Tensor]) -> None:
    """Set the peak rate of each parameter group, at the current step: a loaded state has the rates of the saved run."""
    schedule.base_lrs = list(rates)
    factors = [function(schedule.last_epoch) for function in schedule.lr_lambdas]
    for group, rate, factor in zip(schedule.optimizer.param_groups, rates, factors, strict=True):
        group["initial_lr"], group["lr"] = rate, rate * factor
    schedule._last_lr = [group["lr"] for group in schedule.optimizer.param_groups]
