"""States of the real tokens of a padded batch."""

from torch import Tensor
from torch.nn import functional


def at_tokens(states: Tensor, real: Tensor) -> Tensor:
    """Return the states of real tokens in float64: (batch, length, size) -> (tokens, size).

    Args:
        states: may be longer than the input, as Longformer's hidden states are; (batch, size) of pooled states, which
            are all returned.
        real: bool (batch, length).
    """
    if states.dim() == 2:
        return states.double()
    return states[functional.pad(real, (0, states.shape[1] - real.shape[1]))].double()
