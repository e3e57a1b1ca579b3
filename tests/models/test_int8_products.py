"""Matrix products in int8 are those of whole numbers, and a frozen encoder with them computes nearly the same."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.models import int8_products
from biosqueeze.models.hooks import PARTS, HiddenStateHooks
from biosqueeze.models.inputs import model_inputs
from biosqueeze.models.int8_products import Int8Linear, quantize_products, with_int8_products
from biosqueeze.models.layers import encoder_layers
from biosqueeze.models.loading.load import load_model
from tests import pico

pytestmark = pytest.mark.skipif(not torch.cpu._is_vnni_supported(), reason="needs a CPU with VNNI")


def of_whole_numbers(linear: nn.Linear, inputs: torch.Tensor) -> np.ndarray:
    """Compute the quantized map in float64, product by product of whole numbers."""
    weight, rows = (
        tensor.detach().double().numpy() for tensor in (linear.weight, inputs.reshape(-1, linear.in_features))
    )
    by_channel = np.maximum(np.abs(weight).max(axis=1, keepdims=True), 1e-38) / 127
    by_row = np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-38) / 127
    products = np.floor(rows / by_row + 0.5) @ np.round(weight / by_channel).T
    bias = 0 if linear.bias is None else linear.bias.detach().double().numpy()
    return (products * by_row * by_channel.T + bias).reshape(*inputs.shape[:-1], linear.out_features)


@torch.no_grad()
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("rows", "width", "outputs"), [((3, 5), 300, 40), ((7,), 64, 257), ((2, 0), 32, 4), ((1, 1), 1, 1)]
)
def test_products_are_those_of_whole_numbers(rows: tuple[int, ...], width: int, outputs: int, bias: bool) -> None:
    torch.manual_seed(0)
    linear, inputs = nn.Linear(width, outputs, bias=bias), torch.randn(*rows, width)
    result = Int8Linear(linear)(inputs)
    assert result.dtype == torch.float32
    np.testing.assert_allclose(result.numpy(), of_whole_numbers(linear, inputs), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_large_token_costs_the_others_nothing() -> None:
    torch.manual_seed(0)
    linear, inputs = nn.Linear(384, 64), torch.randn(50, 384)
    alone = Int8Linear(linear)(inputs)
    beside = Int8Linear(linear)(torch.cat([inputs, 1000 * inputs[:1], torch.zeros(1, 384)]))
    assert torch.equal(beside[:50], alone)
    assert torch.equal(beside[-1], linear.bias)
    assert (alone - linear(inputs)).norm() < 0.02 * linear(inputs).norm()


@torch.no_grad()
def test_inputs_need_not_be_contiguous() -> None:
    linear, inputs = nn.Linear(64, 8), torch.randn(5, 3, 64)
    moved = inputs.transpose(0, 1)
    assert torch.equal(Int8Linear(linear)(moved), Int8Linear(linear)(moved.contiguous()))


@pytest.fixture
def encoder(tmp_path: Path) -> Callable[[str], PreTrainedModel]:
    return lambda family: load_model(open_checkpoint(str(pico.save(family, tmp_path / family, head="base")))).model


@torch.no_grad()
@pytest.mark.parametrize("family", pico.FAMILIES)
def test_every_family_computes_nearly_the_same(
    family: str, encoder: Callable[[str], PreTrainedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int8_products, "_LEAST_INPUTS", 1)
    model = encoder(family).eval()
    batch = pico.padded_batch(model)
    real, inputs = batch["attention_mask"].bool(), model_inputs(model, batch)
    before = model(**inputs).last_hidden_state[real]
    linears = {name for name, module in encoder_layers(model).named_modules() if isinstance(module, nn.Linear)}
    assert quantize_products(model) == len(linears)
    modules = dict(encoder_layers(model).named_modules())
    assert all(isinstance(modules[name], Int8Linear) for name in linears)
    hooks = HiddenStateHooks(model, {depth: frozenset(PARTS) for depth in range(1, pico.LAYERS + 1)})
    with hooks.capture() as states:
        after = model(**inputs).last_hidden_state[real]
    assert 0 < (after - before).norm() < 0.1 * before.norm()
    assert all({"hidden", "query", "key", "value"} <= parts.keys() for parts in states.values())


def test_narrow_layers_stay(encoder: Callable[[str], PreTrainedModel]) -> None:
    assert quantize_products(encoder("bert")) == 0


@torch.no_grad()
def test_a_copy_shares_what_is_not_in_int8(
    encoder: Callable[[str], PreTrainedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int8_products, "_LEAST_INPUTS", 1)
    model = encoder("bert").eval()
    inputs = model_inputs(model, pico.padded_batch(model))
    before = model(**inputs).last_hidden_state
    copied = with_int8_products(model)
    own, others = dict(copied.named_parameters()), dict(model.named_parameters())
    assert own
    assert all(own[name] is others[name] for name in own)
    assert not any(isinstance(module, Int8Linear) for module in model.modules())
    assert torch.equal(model(**inputs).last_hidden_state, before)
    quantize_products(model)
    assert torch.equal(model(**inputs).last_hidden_state, copied(**inputs).last_hidden_state)
