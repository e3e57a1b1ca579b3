"""The layers for training on a CPU against the stock ones: values, gradients, dropout, and what they leave out."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from biosqueeze.models.fast_training.attention import training_attention
from biosqueeze.models.fast_training.cheap_dropout import DropMask
from biosqueeze.models.fast_training.fast_layers import _FastLayer, _Selection, encode_rows, fast_layers, fast_layers_of
from biosqueeze.models.inputs import model_inputs
from tests import pico

ROWS, LENGTH = 3, 7
REAL = torch.arange(LENGTH) < torch.tensor([7, 4, 1])[:, None]
SOME = torch.zeros(ROWS, LENGTH, dtype=torch.bool).index_put(
    (torch.tensor([0, 0, 1]), torch.tensor([2, 5, 3])), torch.tensor(True)
)
SELECTIONS = {
    "everything": (torch.ones_like(REAL), torch.ones_like(REAL)),
    "no padding": (REAL, REAL),
    "some tokens": (torch.ones_like(REAL), SOME),
    "some tokens, no padding": (REAL, SOME),
    "no token": (REAL, torch.zeros_like(REAL)),
}


def layer_of(family: str = "bert"):
    return copy.deepcopy(pico.model_of(family, 200, "base").encoder.layer[1]).double().eval()


def hidden_states() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(ROWS, LENGTH, pico.HIDDEN, dtype=torch.float64, generator=generator).requires_grad_()


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
def test_values_and_gradients_equal_stock_in_float64(family: str, name: str) -> None:
    layer, hidden, (real, wanted) = layer_of(family), hidden_states(), SELECTIONS[name]
    mask = REAL[:, None, None, :].expand(ROWS, 1, LENGTH, LENGTH)
    selection = _Selection.of(real, wanted, first="some" in name)
    expected = layer(hidden, mask)[wanted]
    result = _FastLayer(layer).compute(hidden, mask, selection, torch.float64)[selection.wanted]
    torch.testing.assert_close(result, expected)
    inputs, back = [hidden, *layer.parameters()], torch.randn_like(expected)
    for ours, stock in zip(
        torch.autograd.grad(result, inputs, back), torch.autograd.grad(expected, inputs, back), strict=True
    ):
        torch.testing.assert_close(ours, stock, rtol=1e-9, atol=1e-12)


def test_gradients_with_dropout_equal_differences() -> None:
    layer, hidden = layer_of(), hidden_states()
    for module in layer.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.3
    layer.train()
    selection = _Selection.of(REAL, SOME, first=True)

    def compute(hidden: Tensor, *_trained: Tensor) -> Tensor:
        torch.manual_seed(0)
        return _FastLayer(layer).compute(hidden, None, selection, torch.float64)

    trained = list(layer.parameters())
    assert torch.autograd.gradcheck(compute, (hidden, *trained), fast_mode=True)
    dropped = compute(hidden)
    assert not torch.allclose(dropped, _FastLayer(layer.eval()).compute(hidden, None, selection, torch.float64))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_share_of_dropped_elements(dtype: torch.dtype) -> None:
    mask = DropMask(0.1, seed=3)
    kept = mask.applied(torch.ones(1001, 99, dtype=dtype))
    assert set(kept.unique().tolist()) == {0.0, 1.0}
    assert float(kept.double().mean()) == pytest.approx(0.9, abs=0.004)
    assert mask.scale == pytest.approx(1 / 0.9, rel=1e-4)
    assert torch.equal(kept, mask.applied(torch.ones(1001, 99, dtype=dtype)))
    assert not torch.equal(kept, DropMask(0.1, seed=4).applied(torch.ones(1001, 99, dtype=dtype)))
    # Neighbours are dropped independently.
    both = (kept[:, 1:] == 0) & (kept[:, :-1] == 0)
    assert float(both.double().mean()) == pytest.approx(0.01, abs=0.002)


def packed(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Give each row two texts."""
    positions = torch.arange(batch["input_ids"].shape[1]).expand_as(batch["input_ids"]).clone()
    segments = batch["attention_mask"] * (1 + (positions >= 4).long())
    return {**batch, "segments": segments, "positions": torch.where(positions >= 4, positions - 4, positions)}


def encoder_inputs(model, layout: str) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Return the inputs of an encoder, the real tokens, and the tokens whose states are wanted."""
    batch = pico.padded_batch(model)
    batch = packed(batch) if layout == "packed" else batch
    real = batch["attention_mask"].bool()
    return model_inputs(model, batch), real, real & (torch.arange(real.shape[1]) % 5 == 2)


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "camembert", "electra"])
def test_an_encoder_in_bf16_is_close_to_fp32(family: str, layout: str) -> None:
    model = pico.model_of(family, 200, "base").eval()
    inputs, real, wanted = encoder_inputs(model, layout)
    results = []
    for fast in (False, True):
        model.zero_grad()
        layers = fast_layers(model) if fast else nullcontext()
        with training_attention(model), layers, torch.autocast("cpu", torch.bfloat16, enabled=fast):
            assert bool(fast_layers_of(model)) == fast
            rows = encode_rows(model, inputs, real, wanted, pooled=family == "bert")
            pooled = 0 if rows.pooled is None or family != "bert" else rows.pooled.float().square().sum()
            (rows.rows.float().square().sum() + pooled).backward()
        results.append((rows.rows.detach(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}))
    (plain, gradients), (ours, close) = results
    torch.testing.assert_close(ours.float(), plain, atol=0.06, rtol=0.05)
    assert close.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert float((close[name] - gradient).norm()) <= 0.05 * float(gradient.norm()) + 5e-3, (
            name
        )  # a key's bias has none


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
def test_an_encoder_in_fp32_equals_the_stock_one(family: str, layout: str) -> None:
    model = pico.model_of(family, 200, "base").eval()
    inputs, real, wanted = encoder_inputs(model, layout)
    results = []
    for context in (nullcontext(), fast_layers(model)):
        model.zero_grad()
        with training_attention(model), context:
            rows = encode_rows(model, inputs, real, wanted).rows
        rows.square().sum().backward()
        results.append((rows.detach(), [p.grad for p in model.parameters() if p.grad is not None]))
    (plain, gradients), (ours, close) = results
    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)
    assert len(close) == len(gradients)
    for one, other in zip(close, gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_weights_follow_the_optimiser() -> None:
    layer, hidden = layer_of(), hidden_states()
    fast, selection = _FastLayer(layer), _Selection.of(REAL, REAL, first=False)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1, fused=True)
    fast.compute(hidden, None, selection, torch.float64).square().sum().backward()
    optimizer.step()
    updated = fast.compute(hidden, None, selection, torch.float64)
    assert torch.equal(updated, _FastLayer(layer).compute(hidden, None, selection, torch.float64))


@pytest.mark.parametrize("family", ["distilbert", "albert", "mobilebert"])
def test_other_layers_stay_stock(family: str) -> None:
    model = pico.model_of(family, 200, "base")
    with training_attention(model), fast_layers(model), torch.autocast("cpu", torch.bfloat16):
        assert not fast_layers_of(model)


def test_the_stock_layers_come_back() -> None:
    model = pico.model_of("bert", 200, "base")
    with training_attention(model), fast_layers(model):
        assert "forward" in vars(model.encoder.layer[0])
    assert not any("forward" in vars(layer) for layer in model.encoder.layer)
