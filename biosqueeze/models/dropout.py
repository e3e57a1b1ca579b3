"""Change the dropout of a model for one training."""

from torch import nn

_OF_ATTENTION = {"dropout", "attention_dropout"}  # plain numbers in Longformer, ModernBERT and EuroBERT


def set_dropout(model: nn.Module, probability: float) -> None:
    """Set all dropout for this training; config.json, and with it later fine-tuning, keeps its value."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = probability
        for name in _OF_ATTENTION & vars(module).keys():
            if isinstance(vars(module)[name], int | float):
                setattr(module, name, probability)
