"""Losses on hidden states against naive versions."""

import math
from collections.abc import Callable

import pytest
import torch

from biosqueeze import registry
from biosqueeze.objectives import LayerPair, LayerStates
from tests.objectives.signals import hidden_pair

Vectors = list[list[float]]


def naive_squared(student: Vectors, teacher: Vectors) -> float:
    tokens = zip(student, teacher, strict=True)
    return sum(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) / len(a) for a, b in tokens)


def naive_angular(student: Vectors, teacher: Vectors) -> float:
    total = 0.0
    for a, b in zip(student, teacher, strict=True):
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        total += 1 - dot / (math.hypot(*a) * math.hypot(*b))
    return total


NAIVE: dict[str, Callable[[Vectors, Vectors], float]] = {
    "mse": naive_squared,
    "hidden": naive_squared,
    "embedding": naive_squared,
    "cosine": naive_angular,
    "hidden-cosine": naive_angular,
}
LAYERS = {"mse": "last", "cosine": "last", "hidden": "all", "hidden-cosine": "all", "embedding": "embeddings"}


@pytest.mark.parametrize("tokens", [1, 7])
@pytest.mark.parametrize("name", NAIVE)
def test_loss_equals_the_naive_sum_over_tokens(name: str, tokens: int) -> None:
    pair = hidden_pair(tokens, width=6, seed=tokens)
    expected = NAIVE[name](pair.student.hidden.tolist(), pair.teacher.hidden.tolist())
    assert float(registry.load("objectives", name).loss(pair)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", NAIVE)
def test_layers_constant(name: str) -> None:
    assert LAYERS[name] == registry.load("objectives", name).LAYERS


@pytest.mark.parametrize("name", NAIVE)
def test_equal_states_have_zero_loss(name: str) -> None:
    states = hidden_pair().student
    pair = LayerPair(states, states, torch.ones(1, 7, 7, dtype=torch.bool))
    assert float(registry.load("objectives", name).loss(pair)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("name", ["cosine", "hidden-cosine"])
def test_cosine_ignores_vector_lengths(name: str) -> None:
    pair = hidden_pair()
    longer = LayerPair(LayerStates(pair.student.hidden * 3), LayerStates(pair.teacher.hidden / 2), pair.allowed)
    loss = registry.load("objectives", name).loss
    assert float(loss(longer)) == pytest.approx(float(loss(pair)), rel=1e-12)
