"""The optimiser, and gradient checkpointing."""

from typing import Any

from torch.optim import AdamW, Optimizer

from biosqueeze.training.learner import Learner
from biosqueeze.training.optimiser.lamb import Lamb
from biosqueeze.training.options import TrainingOptions, parse_betas


def optimizer_of(learner: Learner, options: TrainingOptions) -> Optimizer:
    """Return AdamW or LAMB over the learner's parameter groups."""
    groups, betas = learner.parameter_groups(options), parse_betas(options.betas)
    if options.optimizer == "lamb":
        return Lamb(groups, lr=options.lr, betas=betas, eps=options.epsilon)
    return AdamW(groups, lr=options.lr, betas=betas, eps=options.epsilon, fused=True)


def checkpoint_activations(model: Any) -> None:
    """Compute each layer again in the backward pass (gradient checkpointing), with the same units dropped."""
    # transformers 5.2x renamed it, and warns of the older name.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})
