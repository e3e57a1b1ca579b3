"""AdamW, its learning rate schedule, and gradient checkpointing."""

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
    """Return the factor of the learning rate at a step: linear from 0 to 1 over the warm-up, then linear to 0."""
    rising = max(1, round(total * warmup))

    def factor(step: int) -> float:
        if step < rising:
            return (step + 1) / rising
        return max(0.0, (total - step) / max(1, total - rising))

    return factor


def set_rates(schedule: LambdaLR, rates: Sequence[float | Tensor]) -> None:
    """Set the peak rate of each parameter group, at the current step: a loaded state has the rates of the saved run."""
    schedule.base_lrs = list(rates)
    factors = [function(schedule.last_epoch) for function in schedule.lr_lambdas]
    for group, rate, factor in zip(schedule.optimizer.param_groups, rates, factors, strict=True):
        group["initial_lr"], group["lr"] = rate, rate * factor
    schedule._last_lr = [group["lr"] for group in schedule.optimizer.param_groups]


def checkpoint_activations(model: Any) -> None:
    """Compute each layer again in the backward pass (gradient checkpointing), with the same units dropped."""
    # transformers 5.2x renamed it, and warns of the older name.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})
