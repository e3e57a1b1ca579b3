"""Layers by depth and the sizes of attention, compared with forward passes."""

import pytest
import torch

from biosqueeze.models.families import FAMILIES, family_of
from biosqueeze.models.layers import attention_sizes, layers_by_depth, normed_states
from tests import pico

ALL = [(family, head) for family in pico.FAMILIES for head in ("base", "mlm")]


@pytest.mark.parametrize(("family", "head"), ALL)
def test_layer_outputs_are_the_hidden_states(family, head):
    model = pico.model_of(family, 200, head)
    seen = []
    layers = layers_by_depth(model)
    for layer in dict.fromkeys(layers):
        layer.register_forward_hook(lambda module, _args, output: seen.append((module, output)))
    states = model(**pico.padded_batch(model), output_hidden_states=True).hidden_states
    assert [module for module, _ in seen] == layers and len(layers) == pico.LAYERS
    outputs = [actual[0] if isinstance(actual, tuple) else actual for _, actual in seen]
    if family_of(model.config).final_norm:
        outputs[-1] = normed_states(model)[-1](outputs[-1])
    for actual, expected in zip(outputs, states[1:], strict=True):
        assert torch.equal(actual[:, : expected.shape[1]], expected)  # Longformer pads to whole windows


@pytest.mark.parametrize(("groups", "inner"), [(1, 2), (2, 1), (3, 1), (4, 2)])
def test_albert_with_several_groups(groups, inner):
    config = pico.config_of("albert", 200)
    config.num_hidden_groups, config.inner_group_num = groups, inner
    from transformers import AlbertModel

    model = AlbertModel(config).eval()
    seen = []
    for layer in dict.fromkeys(layers_by_depth(model)):
        layer.register_forward_hook(lambda module, _args, _output: seen.append(module))
    model(**pico.padded_batch(model))
    assert seen == layers_by_depth(model)


_OTHER = ("rotary", "has_attention_bias", "in_windows")
_PRODUCTS = [name for name in pico.FAMILIES if not any(getattr(FAMILIES[name], mark) for mark in _OTHER)]


@pytest.mark.parametrize("family", _PRODUCTS)
def test_queries_and_keys_give_the_attention_maps(family):
    model = pico.model_of(family, 200, "base")
    model.set_attn_implementation("eager")
    names, (heads, size) = family_of(model.config), attention_sizes(model.config)
    seen = {}
    for part in ("query", "key", "value"):
        module = layers_by_depth(model)[0].get_submodule(getattr(names, part))
        module.register_forward_hook(lambda _m, _args, output, part=part: seen.setdefault(part, output))
    batch = pico.padded_batch(model)
    expected = model(**batch, output_attentions=True).attentions[0]
    query, key, value = (seen[p].unflatten(-1, (heads, size)).transpose(1, 2) for p in ("query", "key", "value"))
    scores = query @ key.transpose(2, 3) / size**0.5  # (batch, heads, query, key)
    blocked = batch["attention_mask"][:, None, None] == 0
    actual = scores.masked_fill(blocked, float("-inf")).softmax(-1)
    assert value.shape == query.shape and torch.allclose(actual, expected, atol=1e-6)
