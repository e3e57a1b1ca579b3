"""Hooks capture what the model reports, for every family, and packed texts do not influence each other."""

import pytest
import torch

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.models.dropout import set_dropout
from biosqueeze.models.families import FAMILIES
from biosqueeze.models.hooks import PARTS, HiddenStateHooks
from biosqueeze.models.inputs import TextRows, model_inputs, within_window
from biosqueeze.models.layers import attention_sizes, attention_window, normed_states
from biosqueeze.models.loading.load import load_model
from biosqueeze.training.optimiser.optimisation import checkpoint_activations
from tests import pico

DEPTHS = (1, 2, pico.LAYERS)


@pytest.fixture(scope="module", params=list(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def with_hooks(family: str, tmp_path, attention: str = "sdpa"):
    path = pico.save(family, tmp_path / family, head="base")
    model = load_model(open_checkpoint(str(path)), attention=attention).model
    return model, HiddenStateHooks(model, {0: frozenset({"hidden"}), **{d: frozenset(PARTS) for d in DEPTHS}})


def over_all_keys(maps: torch.Tensor) -> torch.Tensor:
    """Longformer's maps have a column for each distance in the window: (batch, heads, length, window + 1)."""
    length, side = maps.shape[2], maps.shape[3] // 2
    keys = torch.arange(length)[:, None] + torch.arange(maps.shape[3])  # from -side, moved by it
    whole = maps.new_zeros(*maps.shape[:3], length + 2 * side)
    return whole.scatter_(3, keys.expand_as(maps), maps)[..., side : side + length]


@torch.no_grad()
def test_captured_states_equal_those_the_model_returns(family: str, tmp_path) -> None:
    model, hooks = with_hooks(family, tmp_path, attention="eager")
    batch = pico.padded_batch(model)
    with hooks.capture() as states:
        outputs = model(**model_inputs(model, batch), output_hidden_states=True, output_attentions=True)
    assert sorted(states) == [0, *DEPTHS]
    norms = normed_states(model)[:-1] if FAMILIES[family].input_norm else []  # the last state is normalised already
    for depth, parts in states.items():
        expected = outputs.hidden_states[depth]
        assert torch.equal(parts["hidden"], norms[depth](expected) if depth < len(norms) else expected)
    heads, size = attention_sizes(model.config)
    blocked = ~batch["attention_mask"].bool()[:, None, None, :]
    for depth in DEPTHS:
        query, key = states[depth]["query"], states[depth]["key"]
        assert query.shape == (*batch["input_ids"].shape[:1], heads, batch["input_ids"].shape[1], size)
        window = attention_window(model.config, depth)
        near = within_window(blocked.shape[-1], window or 1000, blocked.device)
        assert ("bias" in states[depth]) == FAMILIES[family].has_attention_bias
        scores = query @ key.transpose(-1, -2) / size**0.5 + states[depth].get("bias", 0)
        scores = scores.masked_fill(blocked | ~near, float("-inf"))
        real = batch["attention_mask"].bool()[:, None, :, None]  # padding far from all tokens has none to attend to
        known = outputs.attentions[depth - 1]
        known = over_all_keys(known) if FAMILIES[family].in_windows else known
        maps = [maps.masked_fill(~real, 0) for maps in (scores.softmax(dim=-1), known)]
        assert torch.allclose(*maps, atol=1e-5)
        assert states[depth]["value"].shape == query.shape


@torch.no_grad()
def test_nothing_is_captured_outside_the_block(family: str, tmp_path) -> None:
    model, hooks = with_hooks(family, tmp_path)
    with hooks.capture() as states:
        pass
    model(**pico.padded_batch(model))
    assert states == {}


def test_captured_states_with_activations_computed_again(family: str, tmp_path) -> None:
    """Gradient checkpointing runs each layer again without capturing it, and the gradients stay the same."""
    model, hooks = with_hooks(family, tmp_path)
    if not model.supports_gradient_checkpointing:
        pytest.skip("transformers cannot do that with this family")
    inputs = model_inputs(model, pico.padded_batch(model))
    sums, gradients = [], []
    for _ in range(2):
        model.eval().zero_grad()
        with hooks.capture() as states:
            model.train(bool(sums))(**inputs)
        total = torch.stack([state.square().sum() for parts in states.values() for state in parts.values()]).sum()
        total.backward()
        sums.append(total.item())
        gradients.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
        set_dropout(model, 0.0)
        checkpoint_activations(model)
    assert sums[0] == pytest.approx(sums[1], rel=1e-6)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_packed_texts_do_not_influence_each_other(family: str, tmp_path) -> None:
    if not FAMILIES[family].supports_packing:
        pytest.skip("its embeddings mix neighbours, or need a mask of tokens")
    model, hooks = with_hooks(family, tmp_path)
    texts = [torch.randint(6, 60, (1, length)) for length in (5, 9, 3)]
    lengths = [text.shape[1] for text in texts]
    batch = {
        "input_ids": torch.cat([*texts, torch.zeros(1, 4, dtype=torch.long)], dim=1),
        "attention_mask": torch.tensor([[1] * sum(lengths) + [0] * 4]),
        "positions": torch.tensor([[i for length in (*lengths, 4) for i in range(length)]]),
        "segments": torch.tensor([[n for n, length in enumerate(lengths, 1) for _ in range(length)] + [0] * 4]),
    }
    with hooks.capture() as states:
        packed = model(**model_inputs(model, batch)).last_hidden_state
    assert packed.isfinite().all()
    start = 0
    for text in texts:
        alone = model(input_ids=text, attention_mask=torch.ones_like(text)).last_hidden_state
        assert torch.allclose(packed[:, start : start + text.shape[1]], alone, atol=1e-5)
        start += text.shape[1]
    assert TextRows.of(batch).pairs == int(TextRows.of(batch).allowed.sum()) == sum(length**2 for length in lengths)
    rows = TextRows.of(batch).rows(packed.unsqueeze(1))  # one head
    assert torch.equal(rows[1, 0, :9], packed[0, 5:14])
    if FAMILIES[family].has_attention_bias:
        with hooks.capture() as alone:
            model(input_ids=texts[1])
        biases = TextRows.of(batch).squares(states[1]["bias"])
        assert torch.allclose(biases[1, :, :9, :9], alone[1]["bias"][0], atol=1e-6)


def test_padding_is_in_no_allowed_pair() -> None:
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    expected = mask[:, :, None].bool() & mask[:, None, :].bool()
    assert torch.equal(TextRows.of({"attention_mask": mask}).allowed, expected)
