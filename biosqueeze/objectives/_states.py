"""Distances between hidden states, token by token, which several losses take at different depths."""

from torch import Tensor
from torch.nn import functional

from biosqueeze.objectives import Pair, full, states_of


def squared(pair: Pair) -> Tensor:
    """Sum over tokens of the squared difference, which is the mean over dimensions. Scalar."""
    student, teacher = states_of(pair, "hidden")  # (tokens, hidden)
    return functional.mse_loss(full(student), full(teacher), reduction="sum") / student.shape[-1]


def angular(pair: Pair) -> Tensor:
    """Sum over tokens of 1 - cos(student, teacher). Scalar."""
    student, teacher = states_of(pair, "hidden")  # (tokens, hidden)
    return (1 - functional.cosine_similarity(full(student), full(teacher), dim=-1)).sum()
