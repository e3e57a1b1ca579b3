"""The optimiser, its learning rate schedule, and gradient checkpointing."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from biosqueeze.training.lamb import Lamb
from biosqueeze.training.learner import Learner
from biosqueeze.training.options import TrainingOptions, parse_betas

_DECAY = 0.1  # share of the steps, at the end, in which the rate of `wsd` falls


def optimizer_of(learner: Learner, options: TrainingOptions) -> Optimizer:
    """Return AdamW or LAMB over the learner's parameter groups."""
    groups, betas = learner.parameter_groups(options), parse_betas(options.betas)
    if options.optimizer == "lamb":
        return Lamb(groups, lr=options.lr, betas=betas, eps=options.epsilon)
    return AdamW(groups, lr=options.lr, betas=betas, eps=options.epsilon, fused=True)


def warm_up_and_decay(total: int, warmup: float, schedule: str = "linear") -> Callable[[int], float]:
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


def checkpoint_activations(model: Any) -> None:
    """Compute each layer again in the backward pass (gradient checkpointing), with the same units dropped."""
    # transformers 5.2x renamed it, and warns of the older name.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})
