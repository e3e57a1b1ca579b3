"""AdamW and its learning rates."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from biosqueeze.training.learner import Learner
from biosqueeze.training.options import TrainingOptions


def optimizer_of(learner: Learner, options: TrainingOptions) -> AdamW:
    """Return AdamW over the learner's parameter groups."""
    return AdamW(learner.parameter_groups(options), lr=options.lr, fused=True)


def warm_up_and_decay(total: int, warmup: float) -> Callable[[int], float]:
    """The learning rate's factor at a step: 0 to 1 over the warm-up, then to 0 at the end, in straight lines."""
    rising = max(1, round(total * warmup))

    def factor(step: int) -> float:
        if step < rising:
            return (step + 1) / rising
        return max(0.0, (total - step) / max(1, total - rising))

    return factor


def set_rates(schedule: LambdaLR, rates: Sequence[float | Tensor]) -> None:
    """Go on at other rates from where the schedule is: a loaded state brings those that it was saved with."""
    schedule.base_lrs = list(rates)
    factors = [function(schedule.last_epoch) for function in schedule.lr_lambdas]
    for group, rate, factor in zip(schedule.optimizer.param_groups, rates, factors, strict=True):
        group["initial_lr"], group["lr"] = rate, rate * factor
    schedule._last_lr = [group["lr"] for group in schedule.optimizer.param_groups]


def checkpoint_activations(model: Any) -> None:
    """Let each layer be computed anew in the backward pass; dropout drops the same units again."""
    # transformers 5.2x renamed it, and warns of the older name.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})
