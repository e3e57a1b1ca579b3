"""Dropout of a training on a CPU: shares, scale, gradients, and what it follows from."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from biosqueeze.models.fast_training.cheap_dropout import cheap_dropout, dropout


@pytest.fixture(autouse=True)
def _bf16() -> Iterator[None]:
    with torch.autocast("cpu", torch.bfloat16):
        yield


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_elements_are_dropped_or_scaled(dtype: torch.dtype) -> None:
    inputs = torch.ones(200, 300, dtype=dtype, requires_grad=True)
    output = dropout(inputs, 0.25)
    assert output.detach().unique().double().tolist() == pytest.approx([0, 4 / 3], rel=0.01)
    assert float(output.detach().double().mean()) == pytest.approx(1, abs=0.02)
    output.sum().backward()
    assert torch.equal(inputs.grad, output.detach())  # of ones, the gradient is the mask with its scale
    assert inputs.detach().eq(1).all()


def test_inputs_in_any_layout() -> None:
    inputs = torch.randn(4, 5, 6, dtype=torch.float64).transpose(0, 2).requires_grad_()

    def compute(inputs: Tensor) -> Tensor:
        torch.manual_seed(3)
        return dropout(inputs, 0.4)

    assert torch.autograd.gradcheck(compute, inputs)
    kept = compute(inputs) != 0
    torch.testing.assert_close(compute(inputs)[kept], inputs[kept] / 0.6, rtol=1e-4, atol=0)


@pytest.mark.parametrize("probability", [0.0, 1e-6])
def test_nothing_is_dropped(probability: float) -> None:
    inputs = torch.randn(50, 50)
    assert dropout(inputs, probability) is inputs


def test_everything_is_dropped() -> None:
    assert not dropout(torch.randn(50, 50), 1.0).any()


def test_a_model_drops_while_it_trains() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.5)))
    inputs = torch.randn(16, 8)
    with cheap_dropout(model):
        torch.manual_seed(0)
        first = model(inputs)
        torch.manual_seed(0)
        assert torch.equal(model(inputs), first)  # torch's generator, which is saved with a state, determines it
        assert not torch.equal(model(inputs), first)
        assert 0.5 < float((first == 0).float().mean()) < 0.95
        assert torch.equal(model.eval()(inputs), model[0](inputs))
    assert not hasattr(model[1].forward, "func")


@pytest.mark.parametrize("elements", [1, 3, 50 * 51])
def test_masks_are_the_same_in_both_passes_in_fp32(elements: int) -> None:
    inputs = torch.randn(elements, requires_grad=True)
    with torch.autocast("cpu", enabled=False):
        torch.manual_seed(0)
        dropped = dropout(inputs, 0.3)
    dropped.sum().backward()
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], inputs[kept] / 0.7, rtol=1e-4, atol=0)
    assert torch.equal(inputs.grad != 0, kept)
    assert elements < 50 or float(kept.float().mean()) == pytest.approx(0.7, abs=0.03)


def test_layers_that_are_computed_again_drop_the_same() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8))
    inputs, gradients = torch.randn(16, 8), []
    with cheap_dropout(model):
        for compute in (model, lambda inputs: checkpoint(model, inputs, use_reentrant=False)):
            torch.manual_seed(0)
            compute(inputs).square().sum().backward()
            gradients.append(model[0].weight.grad.clone())
            model.zero_grad()
    assert gradients[0].any()
    assert torch.equal(*gradients)
