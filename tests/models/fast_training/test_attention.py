"""The attention for training on a CPU equals the fused one: in values, gradients and masking."""

import pytest
import torch
from torch import Tensor, nn

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.models.families import FAMILIES
from biosqueeze.models.fast_training.attention import (
    SDPA,
    TRAINING,
    additive_mask,
    attention_forward,
    training_attention,
)
from biosqueeze.models.fast_training.cheap_dropout import DropMask
from biosqueeze.models.loading.load import load_model
from tests import pico

ROWS, HEADS, LENGTH, SIZE = 3, 4, 13, 8


def random_inputs(dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Query, key and value, and the gradient of the output."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(ROWS, HEADS, LENGTH, SIZE, generator=generator).to(torch.bfloat16).to(dtype).requires_grad_()
        for _ in range(3)
    )
    back = torch.randn(ROWS, LENGTH, HEADS, SIZE, generator=generator).to(torch.bfloat16).to(dtype)
    return query, key, value, back


def masks() -> dict[str, Tensor | None]:
    lengths = torch.tensor([13, 9, 1])
    ragged = torch.arange(LENGTH)[None, :] < lengths[:, None]
    texts = torch.tensor([[1] * 5 + [2] * 8, [1] * 9 + [0] * 4, [1] * 2 + [2] * 2 + [3] * 9])
    return {
        "none": None,
        "ragged": ragged[:, None, None, :],
        "packed": (texts[:, :, None] == texts[:, None, :])[:, None],
        "added": torch.where(ragged, 0.0, -1e9).to(torch.bfloat16)[:, None, None, :],
    }


def naive(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Compute attention element by element, in float64."""
    out = torch.zeros(ROWS, LENGTH, HEADS, SIZE, dtype=torch.float64)
    for row in range(ROWS):
        for head in range(HEADS):
            for i in range(LENGTH):
                allowed = [j for j in range(LENGTH) if _is_allowed(mask, row, i, j)]
                weights = torch.stack([query[row, head, i] @ key[row, head, j] / SIZE**0.5 for j in allowed]).softmax(0)
                out[row, i, head] = sum(w * value[row, head, j] for w, j in zip(weights, allowed, strict=True))
    return out


def _is_allowed(mask: Tensor | None, row: int, i: int, j: int) -> bool:
    if mask is None:
        return True
    entry = mask[row, 0, i % mask.shape[2], j]
    return bool(entry) if mask.dtype == torch.bool else float(entry) == 0


@pytest.mark.parametrize("name", masks())
def test_values_and_gradients_equal_the_definition(name: str) -> None:
    mask, module = masks()[name], nn.Module()
    exact = random_inputs(torch.float64)
    expected = naive(*exact[:3], mask)
    expected.backward(exact[3])
    ours = random_inputs(torch.bfloat16)
    got, attention_map = attention_forward(module, *ours[:3], mask)
    assert attention_map is None
    got.backward(ours[3])
    assert torch.allclose(got.double(), expected, atol=0.02)
    for tensor, reference in zip(ours[:3], exact[:3], strict=True):
        assert torch.allclose(tensor.grad.double(), reference.grad, atol=0.05)
        assert torch.equal(tensor.grad == 0, reference.grad == 0)  # masked tokens get no gradient at all


def test_scaling_is_an_argument() -> None:
    query, key, value, _ = random_inputs(torch.bfloat16)
    flat, _ = attention_forward(nn.Module(), query, key, value, None, scaling=0.0)
    assert torch.allclose(flat.float(), value.mean(dim=2, keepdim=True).transpose(1, 2).float(), atol=0.02)


def test_dropout_keeps_the_mean_of_the_map() -> None:
    query, key, value, _ = random_inputs(torch.bfloat16)
    torch.manual_seed(0)
    ones = torch.ones_like(value)
    sums = torch.stack([attention_forward(nn.Module(), query, key, ones, None, dropout=0.3)[0] for _ in range(200)])
    sums = sums.detach().float()
    assert sums.std() > 0.1
    assert abs(float(sums.mean()) - 1) < 0.02


@pytest.mark.parametrize("name", masks())
def test_fp32_with_dropout_equals_float64_with_the_same_mask(name: str) -> None:
    allowed, ours, exact = masks()[name], random_inputs(torch.float32), random_inputs(torch.float64)
    torch.manual_seed(0)
    got, _ = attention_forward(nn.Module(), *ours[:3], allowed, dropout=0.3)
    torch.manual_seed(0)
    drop = DropMask.drawn(0.3)
    scores = exact[0] @ exact[1].transpose(2, 3) / SIZE**0.5
    if allowed is not None:
        scores = scores.masked_fill(~allowed if allowed.dtype == torch.bool else allowed < 0, float("-inf"))
    kept = drop.applied(torch.ones_like(scores)) * drop.scale
    expected = ((scores.softmax(dim=-1) * kept) @ exact[2]).transpose(1, 2)
    torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-5)
    got.backward(ours[3])
    expected.backward(exact[3])
    for tensor, reference in zip(ours[:3], exact[:3], strict=True):
        torch.testing.assert_close(tensor.grad.double(), reference.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("dtype", "graded"), [(torch.float32, True), (torch.bfloat16, False)])
def test_other_types_use_the_fused_kernel(dtype: torch.dtype, graded: bool) -> None:
    query, key, value, _ = random_inputs(dtype)
    mask = masks()["packed"]
    with torch.set_grad_enabled(graded):
        got, _ = attention_forward(nn.Module(), query, key, value, mask)
        fused = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    assert torch.equal(got, fused.transpose(1, 2))


@pytest.mark.parametrize("family", [name for name, family in FAMILIES.items() if family.supports_sdpa])
def test_model_trains_with_it_and_is_restored(family: str, tmp_path, monkeypatch) -> None:
    path = pico.save(family, tmp_path / family, head="base")
    model = load_model(open_checkpoint(str(path))).model
    batch = pico.padded_batch(model)

    def gradients() -> Tensor:
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            states = model(**batch).last_hidden_state
        (states.float() * batch["attention_mask"][..., None]).square().sum().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    fused = gradients()
    with training_attention(model):
        assert model.config._attn_implementation == TRAINING
        with monkeypatch.context() as patched:
            patched.setattr("biosqueeze.models.fast_training.attention.sdpa_attention_forward", _must_not_run)
            quick = gradients()
        model.save_pretrained(tmp_path / "saved")
    assert model.config._attn_implementation == SDPA
    assert torch.nn.functional.cosine_similarity(quick, fused, dim=0) > 0.999
    assert TRAINING not in (tmp_path / "saved" / "config.json").read_text(encoding="utf-8")


def test_model_with_eager_attention_is_unchanged(pico_bert) -> None:
    model = load_model(open_checkpoint(str(pico_bert)), attention="eager").model
    with training_attention(model):
        assert model.config._attn_implementation == "eager"


def _must_not_run(*_args: object, **_options: object) -> None:
    raise AssertionError("the fused attention ran while training")


def test_what_is_added_to_scores_is_on_their_device() -> None:
    """Packed texts of MPNet, which has eager attention alone, ended with an error on a GPU."""
    mask = torch.ones(2, 1, 3, 3, dtype=torch.bool, device="meta")
    assert additive_mask(mask, torch.float32).device == mask.device
