"""Change the dropout of a model for one training."""

from torch import nn


def set_dropout(model: nn.Module, probability: float) -> None:
    """Set all dropout for this training; config.json, and with it later fine-tuning, keeps its value."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = probability
