"""Build the learner of a fine-tuning from its options."""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from biosqueeze.data.collate import Features
from biosqueeze.data.output_types import OutputType
from biosqueeze.finetuning.class_weights import Weights, balanced_weights
from biosqueeze.finetuning.learner import FineTuner
from biosqueeze.finetuning.options import FineTuningOptions
from biosqueeze.finetuning.reinit import reinitialise
from biosqueeze.models.custom_heads.encoder import HeadedEncoder, Loss
from biosqueeze.models.output_tensors import tensors_of


def build_fine_tuner(
    options: FineTuningOptions,
    model: PreTrainedModel | HeadedEncoder,
    output_type: OutputType,
    features: Sequence[Features],
    head_loss: Loss | None = None,
) -> FineTuner:
    """Return the learner; with --reinit-layers, top layers of the model are initialised again first.

    Args:
        options: of the stage.
        model: with its head.
        output_type: of the task.
        features: the training windows, whose labels are counted for --class-weights.
        head_loss: the loss of a head over whole label sequences (a CRF), in place of the output type's loss.

    Raises:
        UsageError: the model has fewer layers than are to be initialised again.
    """
    reinitialise(model, options.reinit_layers, options.seed)
    loss = head_loss
    if options.class_weights == "balanced":
        loss = _weighted_loss(output_type, balanced_weights(features, output_type, model.config.num_labels or 0))
    return FineTuner(model, output_type, loss, smart=options.smart, layer_decay=options.layer_decay)


def _weighted_loss(output_type: OutputType, class_weights: Weights) -> Loss:
    weights, mean_loss = torch.from_numpy(class_weights), tensors_of(output_type).loss
    return lambda logits, batch: mean_loss(logits, batch, weights.to(logits.device))
