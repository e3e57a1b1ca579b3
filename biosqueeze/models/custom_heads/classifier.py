"""The linear layer and the dropout of a classifier, as transformers' own heads have them."""

from torch import nn
from transformers import PreTrainedConfig

# The second key is ALBERT's.
_DROPOUT_KEYS = ("classifier_dropout", "classifier_dropout_prob")


def new_linear(config: PreTrainedConfig, inputs: int, outputs: int) -> nn.Linear:
    """Return a linear layer with the random initialisation of transformers' classifiers."""
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=config.initializer_range)
    nn.init.zeros_(layer.bias)
    return layer


def classifier_dropout(config: PreTrainedConfig, *keys: str) -> nn.Dropout:
    """Return the dropout before a classifier.

    Args:
        config: of the encoder.
        keys: more config keys to read its probability from, after the usual ones and before that of hidden states.
    """
    names = (*_DROPOUT_KEYS, *keys, "hidden_dropout_prob", "dropout")
    values = (getattr(config, name, None) for name in names)
    return nn.Dropout(float(next((value for value in values if value is not None), 0.0)))
