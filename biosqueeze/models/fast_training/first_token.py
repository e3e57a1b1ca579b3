"""The last layer of a sequence classifier, computed for the first token alone: its head reads no other."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from biosqueeze.models.families import family_of
from biosqueeze.models.fast_training.attention import FIRST_ALONE
from biosqueeze.models.fast_training.fast_layers import FAMILIES
from biosqueeze.models.layers import encoder_layers


def reads_first_token(model: Any) -> bool:
    """Return whether a model is a stock sequence classifier with BERT's layers."""
    if not isinstance(model, PreTrainedModel) or model.config.model_type not in FAMILIES:
        return False
    return type(model).__name__ == family_of(model.config).architecture("sequence-classification")


@contextmanager
def first_token_alone(model: PreTrainedModel) -> Iterator[None]:
    """Leave out the other tokens in the last layer of a model inside the block, see `leave_out_others`."""
    undo = leave_out_others(model)
    try:
        yield
    finally:
        undo()


def leave_out_others(model: PreTrainedModel) -> Callable[[], None]:
    """Have the last layer project all tokens to queries, keys and values, and compute the rest for the first alone.

    Logits and their gradients are the same. The states of the last layer are (batch, 1, hidden). An attention other
    than `TRAINING` still attends from all tokens.

    Args:
        model: one that `reads_first_token`.

    Returns:
        the function that undoes it.
    """
    attention: Any = encoder_layers(model)[-1].get_submodule("attention")
    handle = attention.output.register_forward_pre_hook(_first)
    setattr(attention.self, FIRST_ALONE, True)

    def undo() -> None:
        handle.remove()
        delattr(attention.self, FIRST_ALONE)

    return undo


def _first(_module: nn.Module, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the first token of what attention adds, and of what it is added to: (batch, 1, hidden) each."""
    return tuple(state[:, :1] for state in states)
