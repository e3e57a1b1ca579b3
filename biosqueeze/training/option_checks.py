"""Check the options of a training, so that none is ignored silently."""

from typing import Any

import transformers

from biosqueeze.errors import UsageError
from biosqueeze.models.families import Family
from biosqueeze.options import flag_of
from biosqueeze.system import processes
from biosqueeze.training.compilation import check_compiler
from biosqueeze.training.options import PLATEAU, TrainingOptions
from biosqueeze.training.trackers import check_tracker


def check_training_options(options: TrainingOptions, *, evaluated: bool) -> None:
    """Check options against each other, the data and what is installed, before anything is read.

    Args:
        options: of the training.
        evaluated: whether there are scores on a dev split.

    Raises:
        UsageError: an option needs what this training does not have.
        SqueezeError: an option needs a package or compiler that is not installed.
    """
    needs_scores = [flag_of(name) for name in ("eval_every", "patience") if getattr(options, name)]
    needs_scores += ["--schedule plateau"] if options.schedule == PLATEAU else []
    if needs_scores and not evaluated:
        flags = ", ".join(needs_scores)
        raise UsageError(f"{flags} needs scores on a dev split, and this training has none; leave it out")
    if options.schedule == PLATEAU and processes.sharding():
        raise UsageError("--schedule plateau cannot be combined with parameters that are divided over processes")
    if options.hours and options.schedule != PLATEAU:
        raise UsageError("--hours needs --schedule plateau; give --steps to end at a certain step")
    if options.compile:
        check_compiler()
    check_tracker(options)


def check_family(options: TrainingOptions, family: Family) -> None:
    """Check options against the model's family, before its weights are loaded.

    Raises:
        UsageError: the family cannot compute activations again in the backward pass.
    """
    check_supported(options, getattr(transformers, family.architecture("base")))


def check_supported(options: TrainingOptions, model: Any) -> None:
    """Check options against the model, or its class.

    Raises:
        UsageError: the model cannot compute activations again in the backward pass.
    """
    if options.gradient_checkpointing and not model.supports_gradient_checkpointing:
        raise UsageError(
            "--gradient-checkpointing does not work with this model: transformers does not implement it for its "
            "family; leave it out"
        )
