"""The choice of layers, and that the shallower model computes the same as its layers did."""

import re
from itertools import combinations, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForMaskedLM

from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.models.attention_pattern import attention_period, nearest_regular
from biosqueeze.models.count import count_model
from biosqueeze.models.cuts.depth import keep_layers, parse_layers, parse_layers_of
from biosqueeze.models.families import family_of
from biosqueeze.models.loading.load import new_model
from biosqueeze.models.verify import float_outputs
from tests import pico


@pytest.mark.parametrize(
    ("text", "total", "kept"),
    [
        ("6", 12, (0, 2, 4, 7, 9, 11)),
        ("3", 12, (0, 6, 11)),
        ("3", 6, (0, 2, 5)),
        ("1", 12, (0,)),
        ("2", 12, (0, 11)),
        ("4", 4, (0, 1, 2, 3)),
        ("every-other", 6, (0, 2, 4)),
        ("every-other", 5, (0, 2, 4)),
        ("odd", 6, (1, 3, 5)),
        ("top", 6, (3, 4, 5)),
        ("bottom", 6, (0, 1, 2)),
        ("top", 5, (3, 4)),
        ("0,2,4", 6, (0, 2, 4)),
        ("0, 5", 6, (0, 5)),
        ("5,", 6, (5,)),
        *((name, 1, (0,)) for name in ("every-other", "odd", "top", "bottom", "1")),
    ],
)
def test_layer_choices(text, total, kept):
    assert parse_layers(text, total) == kept


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("7", "from 1 to 6"),
        ("0", "from 1 to 6"),
        ("-1", "from 1 to 6"),
        ("0,6", "no layer 6; the model has layers 0 to 5"),
        ("-1,2", "no layer -1"),
        ("4,2,0", "did you mean 0,2,4"),
        ("0,0,1", "did you mean 0,1"),
        ("upper", "nor one of every-other"),
        ("", "neither a number"),
        (",", "neither a number"),
        ("1.5", "neither a number"),
        *((text, "neither a number") for text in ("+6", "0_3", "\u0663", "\u00b2", "0,+2")),
    ],
)
def test_invalid_layer_choices(text, message):
    with pytest.raises(UsageError, match=message):
        parse_layers(text, 6)


@given(st.integers(1, 48), st.data())
def test_even_spread_ascends_from_first_to_last(total, data):
    count = data.draw(st.integers(1, total))
    kept = parse_layers(str(count), total)
    assert len(kept) == count == len(set(kept))
    assert list(kept) == sorted(kept) and kept[0] == 0 and kept[-1] <= total - 1
    assert count == 1 or kept[-1] == total - 1
    gaps = [b - a for a, b in pairwise(kept)]
    assert not gaps or max(gaps) - min(gaps) <= 1


@pytest.mark.parametrize(("family", "head"), [(f, h) for f in pico.FAMILIES if f != "albert" for h in pico.HEADS_OF[f]])
def test_shallower_model_skips_the_other_layers(family, head):
    model = pico.model_of(family, 200, head)
    shallow, difference = keep_layers(model, (0, 3))
    batch = pico.padded_batch(model)
    assert difference == 0.0
    assert type(shallow) is type(model) and shallow.config.num_hidden_layers == 2
    trunk = model.base_model.get_submodule(family_of(model.config).layers)
    own = family_of(model.config)
    in_tuple = own.has_attention_bias or own.in_windows  # these layers return an attention map too
    trunk[1].forward = trunk[2].forward = lambda hidden, *args, **kwargs: (hidden, None) if in_tuple else hidden
    outputs, expected = float_outputs(shallow, batch), float_outputs(model, batch)
    assert torch.equal(outputs[0], expected[0])
    assert torch.equal(pico.last_hidden(shallow, batch), pico.last_hidden(model, batch))


@pytest.mark.parametrize("head", pico.HEADS_OF["albert"])
def test_shallower_albert_runs_its_layer_less_often(head):
    model = pico.model_of("albert", 200, head)
    shallow, difference = keep_layers(model, parse_layers_of(model.config, "2"))
    batch = pico.padded_batch(model)
    assert difference == 0.0
    assert type(shallow) is type(model) and shallow.config.num_hidden_layers == 2
    assert count_model(shallow) == count_model(model)
    layer = model.base_model.encoder.albert_layer_groups[0]
    runs, run = [], layer.forward
    layer.forward = lambda hidden, *args, **kwargs: (
        runs.append(1) or (run(hidden, *args, **kwargs) if len(runs) <= 2 else hidden)
    )
    expected = model(**batch)[0]
    assert len(runs) == 4 and torch.equal(shallow(**batch)[0], expected)


def test_albert_layers_are_chosen_by_number_only():
    config = pico.config_of("albert", 100)
    assert parse_layers_of(config, "3") == (0, 1, 2)
    for text in ("0,3", "odd", "top"):
        with pytest.raises(UsageError, match="takes only a number; give 2"):
            parse_layers_of(config, text)
    with pytest.raises(UsageError, match="from 1 to 4"):
        parse_layers_of(config, "5")
    config.num_hidden_groups = 2
    with pytest.raises(UsageError, match="several groups"):
        parse_layers_of(config, "2")


def test_mobilebert_layers_are_chosen_by_name():
    assert parse_layers_of(pico.config_of("mobilebert", 100), "odd") == (1, 3)


def test_kept_layers_keep_their_kind_of_attention(tmp_path):
    model = pico.model_of("modernbert", 200)
    for layers, period in (((0, 1, 2, 3), 3), ((0, 3), 1), ((0, 1, 3), 2), ((1, 3), None)):
        shallow, _ = keep_layers(model, layers)
        types = [model.config.layer_types[layer] for layer in layers]
        assert [layer.attention_type for layer in shallow.model.layers] == types == shallow.config.layer_types
        shallow.save_pretrained(tmp_path)
        stock = AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
        assert [layer.attention_type for layer in stock.model.layers] == types
        assert getattr(stock.config, "global_attn_every_n_layers", None) == period
        batch = pico.padded_batch(model)
        assert torch.allclose(stock(**batch).logits, shallow(**batch).logits, atol=1e-6)


@pytest.mark.parametrize("types", ["gllgllgl", "glglll", "llg", "lll", "gggg"])
def test_nearest_layers_with_a_period(types):
    kinds = ["full_attention" if kind == "g" else "sliding_attention" for kind in types]
    for count in range(1, len(kinds) + 1):
        every = list(combinations(range(len(kinds)), count))
        regular = [chosen for chosen in every if attention_period([kinds[layer] for layer in chosen])]
        for layers in every:
            by_distance = [(sum(abs(a - b) for a, b in zip(layers, c, strict=True)), c) for c in regular]
            assert nearest_regular(kinds, layers) == (min(by_distance)[1] if by_distance else None)


def test_layers_without_a_period_bring_a_warning(capsys):
    for layers, warned in (((0, 3), False), ((0, 1, 2), False), ((0, 2, 3), False), ((1, 3), True)):
        keep_layers(pico.model_of("modernbert", 200), layers)
        assert ("for version 4 keep --layers 0,3" in " ".join(capsys.readouterr().err.split())) == warned


def test_new_first_layer_takes_its_norm_over(capsys):
    model = pico.model_of("modernbert", 200)
    shallow, difference = keep_layers(model, (1, 3))
    assert difference < 1e-5 and "layer 1 becomes the first" in capsys.readouterr().err
    assert isinstance(shallow.model.layers[0].attn_norm, torch.nn.Identity)
    ids = torch.arange(200)[None]
    states, old = model.model.embeddings(input_ids=ids), model.model.layers[1]
    projected, expected = shallow.model.layers[0].attn.Wqkv(states), old.attn.Wqkv(old.attn_norm(states))
    dropped = old.attn.Wqkv(states)
    assert (projected - expected).norm() < 0.1 * expected.norm() < (dropped - expected).norm()
    model.model.embeddings.norm.weight.data.fill_(1)  # then all tokens have one deviation, and the norm is linear
    exact, _ = keep_layers(model, (1, 3))
    states = model.model.embeddings(input_ids=ids)
    projected, expected = exact.model.layers[0].attn.Wqkv(states), old.attn.Wqkv(old.attn_norm(states))
    assert torch.allclose(projected, expected, atol=2e-3)


def test_original_is_unchanged():
    model = pico.model_of("bert", 200)
    before = pico.last_hidden(model, pico.padded_batch(model))
    keep_layers(model, (1,))
    assert torch.equal(before, pico.last_hidden(model, pico.padded_batch(model)))


def test_wrong_rebuild_is_detected(monkeypatch):
    model = pico.model_of("bert", 200)
    from biosqueeze.models.cuts import depth

    right = depth._renamed

    def swapped(model, path, renumbered):
        old = list(renumbered)
        return right(model, path, {old[0]: renumbered[old[1]], old[1]: renumbered[old[0]]})

    monkeypatch.setattr(depth, "_renamed", swapped)
    with pytest.raises(SqueezeError, match="changes the outputs"):
        keep_layers(model, (0, 3))


@pytest.mark.parametrize("attention_bias", [True, False])
def test_error_of_a_folded_norm_counts_its_bias(attention_bias, capsys):
    config = pico.config_of("modernbert", 200)
    config.update({"norm_bias": True, "attention_bias": attention_bias})
    model = new_model(config, "ModernBertModel", seed=0).eval()
    norm, projection = model.layers[1].attn_norm, model.layers[1].attn.Wqkv
    torch.nn.init.normal_(norm.bias, generator=torch.Generator().manual_seed(0))
    shallow, _ = keep_layers(model, (1, 3))
    states = model.embeddings(input_ids=torch.arange(200)[None])
    expected, folded = projection(norm(states)), shallow.layers[0].attn.Wqkv(states)
    error = ((folded - expected).norm() / expected.norm()).item()
    printed = re.search(r"\(error ([\d.]+)%", " ".join(capsys.readouterr().err.split()))
    assert printed and (error > 0.3) == (float(printed[1]) > 30) == (not attention_bias)
