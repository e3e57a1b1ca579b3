"""Distances between hidden states, token by token, shared by the losses on hidden states."""

from torch import Tensor
from torch.nn import functional

from biosqueeze.models.full_precision import full
from biosqueeze.objectives import LayerPair, states_of


def squared(pair: LayerPair) -> Tensor:
    """Sum the squared difference over tokens; mean over dimensions. Scalar."""
    student, teacher = states_of(pair, "hidden")  # (tokens, hidden)
    return functional.mse_loss(full(student), full(teacher), reduction="sum") / student.shape[-1]


def angular(pair: LayerPair) -> Tensor:
    """Sum 1 - cos(student, teacher) over tokens. Scalar."""
    student, teacher = states_of(pair, "hidden")  # (tokens, hidden)
    return (1 - functional.cosine_similarity(full(student), full(teacher), dim=-1)).sum()
