"""Whether scores on dev can end a distillation: not where the student's head stays as it was initialized."""

from dataclasses import replace

from biosqueeze.distillation.losses.config import LossConfig
from biosqueeze.distillation.request import DistillationRequest
from biosqueeze.errors import UsageError
from biosqueeze.options import flag_of
from biosqueeze.progress import note
from biosqueeze.training.options import PLATEAU, TrainingOptions


def has_trained_head(request: DistillationRequest, loss_config: LossConfig, *, before: bool) -> bool:
    """Return whether the student's head is trained: before the distillation, in a warm start, or by a loss.

    Args:
        request: of the distillation.
        loss_config: the losses.
        before: whether the student starts with a trained head.
    """
    return before or loss_config.trains_head or request.warm_epochs is not None


def without_dev_scores(request: DistillationRequest, loss_config: LossConfig) -> TrainingOptions:
    """Return the options with a fixed number of epochs where dev scores would end the training only by default.

    Raises:
        UsageError: an option needs dev scores, which those of a head that is not trained are not.
    """
    training, cause = request.training, "no loss trains the student's head"
    if training.sources.get("schedule") == "task" and not training.hours:
        note(f"{cause}, so no dev score can end the training: it has {training.epochs:g} epochs")
        training = replace(training, schedule=TrainingOptions.schedule)
    flags = [flag_of(name) for name in ("eval_every", "patience", "hours") if getattr(training, name)]
    flags += ["--schedule plateau"] if training.schedule == PLATEAU and not training.hours else []
    if flags and request.data.data:
        raise UsageError(
            f"{', '.join(flags)} needs scores on dev, and {cause} (--loss {', '.join(loss_config.weights)}), so they "
            "would be chance; leave it out, or add --loss kl"
        )
    return training
