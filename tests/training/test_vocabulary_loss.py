"""The cross entropy over a vocabulary against torch's own in float64, and where its softmax is nearly 0 or 1."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from biosqueeze.training.vocabulary_loss import vocabulary_loss


@pytest.mark.parametrize(("rows", "size"), [(0, 1.0), (3, 1.0), (150, 1.0), (70, 300.0)])
def test_loss_and_gradients_equal_torch(rows: int, size: float) -> None:
    torch.manual_seed(0)
    decoder = nn.Linear(8, 31).double()
    hidden = (size * torch.randn(rows, 8, dtype=torch.float64)).requires_grad_()
    labels, seen = torch.randint(31, (rows,)), torch.zeros(rows, 31, dtype=torch.float64)

    def observe(probabilities: torch.Tensor, part: slice) -> None:
        seen[part] = probabilities

    loss = vocabulary_loss(hidden, decoder, labels, torch.float64, observe)
    logits = decoder(hidden)
    expected = functional.cross_entropy(logits, labels, reduction="sum")
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(seen, logits.softmax(dim=-1))
    inputs = (hidden, *decoder.parameters())
    ours, theirs = (torch.autograd.grad(2.5 * each, inputs) for each in (loss, expected))
    torch.testing.assert_close(ours, theirs)
