"""The precision of losses and gradients."""

from torch import Tensor


def full(tensor: Tensor) -> Tensor:
    """Convert to float32 unless the precision is that or higher."""
    return tensor.float() if tensor.element_size() < 4 else tensor
