"""The divergence in parts against its definition over the whole batch: values, and gradients of both models."""

import pytest
import torch
from torch import Tensor

from biosqueeze.objectives import _divergence
from biosqueeze.objectives._divergence import Sides, divergence
from tests.objectives.signals import normal

BATCH, HEADS, LENGTH = 5, 2, 6
ENDS = torch.tensor([6, 2, 4, 1, 0])  # the last text is all padding
REAL = torch.arange(LENGTH) < ENDS[:, None]
PADDED = REAL[:, :, None] & REAL[:, None, :]
MASKS = {
    "padded": PADDED,
    "within a window": PADDED & (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).abs().le(1),
    "earlier keys only": (PADDED & torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril(-1)),
    "everywhere": torch.ones_like(PADDED),
}


def sides(size: int, seed: int, bias: int) -> Sides:
    """Draw vectors, and a bias of each text (BATCH), of all (1) or none (0)."""
    left, right = (normal(BATCH, HEADS, LENGTH, size, seed=seed + part).requires_grad_() for part in range(2))
    added = normal(bias, HEADS, LENGTH, LENGTH, seed=seed + 2).requires_grad_() if bias else None
    return Sides(left, right, added)


def defined(first: Sides, second: Sides, allowed: Tensor) -> Tensor:
    """Sum the divergence query by query, over the keys that it may attend to."""
    total = torch.zeros((), dtype=torch.float64)
    for text, head, query in torch.cartesian_prod(*map(torch.arange, (BATCH, HEADS, LENGTH))).tolist():
        keys = allowed[text, query].nonzero().flatten()
        if len(keys):
            p, q = (_row(model, text, head, query, keys) for model in (first, second))
            total = total + (p.exp() * (p - q)).sum()
    return total / HEADS


def _row(model: Sides, text: int, head: int, query: int, keys: Tensor) -> Tensor:
    row = model.right[text, head, keys] @ model.left[text, head, query] / model.left.shape[-1] ** 0.5
    if model.bias is not None:
        row = row + model.bias[text % len(model.bias), head, query, keys]
    return row.log_softmax(0)


@pytest.mark.parametrize("scores", [1, 3 * HEADS * LENGTH**2, 10**6], ids=["texts", "parts", "whole"])
@pytest.mark.parametrize("biases", [(0, 0), (BATCH, 1)], ids=["plain", "biased"])
@pytest.mark.parametrize("mask", MASKS)
def test_value_and_gradients_equal_the_definition(
    mask: str, biases: tuple[int, int], scores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_divergence, "_SCORES_ON_CPU", scores)
    first, second = sides(3, 0, biases[0]), sides(4, 10, biases[1])
    leaves = [tensor for tensor in (*first, *second) if tensor is not None]
    value, expected = (function(first, second, MASKS[mask]) for function in (divergence, defined))
    torch.testing.assert_close(value, expected)
    for gradient, naive in zip(
        torch.autograd.grad(3 * value, leaves), torch.autograd.grad(3 * expected, leaves), strict=True
    ):
        torch.testing.assert_close(gradient, naive, rtol=1e-9, atol=1e-12)


def test_without_gradients_the_value_is_the_same() -> None:
    first, second = sides(3, 0, 0), sides(3, 10, 0)
    with torch.no_grad():
        value = divergence(first, second, PADDED)
    assert torch.equal(value, divergence(first, second, PADDED))


def test_float32_is_computed_in_float32() -> None:
    first, second = sides(3, 0, 0), sides(4, 10, 0)
    exact = torch.autograd.grad(divergence(first, second, PADDED), second[:2])
    single = [Sides(*(tensor.float() for tensor in each[:2])) for each in (first, second)]
    with torch.autocast("cpu", torch.bfloat16):
        value = divergence(*single, PADDED)
    for gradient, expected in zip(torch.autograd.grad(value, single[1][:2]), exact, strict=True):
        torch.testing.assert_close(gradient, expected.float(), rtol=1e-4, atol=1e-5)
