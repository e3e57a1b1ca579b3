"""From the options of fine-tuning to a learner that they act on."""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from biosqueeze.data.collate import Features
from biosqueeze.data.output_types import OutputType
from biosqueeze.errors import UsageError
from biosqueeze.finetuning.class_weights import balanced_weights
from biosqueeze.finetuning.learner import FineTuner
from biosqueeze.finetuning.options import FineTuningOptions
from biosqueeze.finetuning.reinit import reinitialise
from biosqueeze.models.custom_heads import HeadedEncoder, Loss
from biosqueeze.models.siamese import CosineHead


def fine_tuner(
    options: FineTuningOptions,
    model: PreTrainedModel | HeadedEncoder,
    output_type: OutputType,
    features: Sequence[Features],
    loss: Loss | None = None,
) -> FineTuner:
    """The learner; some of the model's layers are drawn anew first where --reinit-layers says so.

    Args:
        options: of the stage.
        model: with its head.
        output_type: of the task.
        features: the training windows, whose labels are counted for --class-weights.
        loss: the head's own, of whole sequences of labels (a CRF's), in place of the output type's.

    Raises:
        UsageError: an option does not fit the model, the output type or the loss.
    """
    if loss is not None:
        _refuse_for_own_loss(options)
    if options.smart and isinstance(model, HeadedEncoder) and isinstance(model.head, CosineHead):
        raise UsageError("--smart needs both texts read together, and --representation cosine reads them apart")
    reinitialise(model, options.reinit_layers, options.seed)
    balance = None
    if options.class_weights == "balanced":
        balance = torch.from_numpy(balanced_weights(features, output_type, model.config.num_labels or 0))
    return FineTuner(
        model, output_type, loss=loss, balance=balance, smart=options.smart, layer_decay=options.layer_decay
    )


def _refuse_for_own_loss(options: FineTuningOptions) -> None:
    unfit = {"--class-weights": options.class_weights != "none", "--smart": options.smart > 0}
    for flag, asked in unfit.items():
        if asked:
            raise UsageError(
                f"{flag} is about single labels, and this head is trained on sequences of them; leave it out"
            )
