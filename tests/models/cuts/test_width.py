"""Narrower models: equal to masked originals, of stock shape, chosen by importance."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModel, ElectraConfig, EuroBertModel, ModernBertForSequenceClassification

from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.models.cuts import width
from biosqueeze.models.cuts.depth import keep_layers
from biosqueeze.models.cuts.head_rotation import rotate_heads
from biosqueeze.models.cuts.sliced_pruning import SlicedPruning
from biosqueeze.models.cuts.width import Widths, choose_widths, narrow, narrowed_config
from biosqueeze.models.families import FAMILIES, family_of
from biosqueeze.models.layers import query_group
from biosqueeze.models.verify import TOLERANCE
from tests import pico

NARROWING = [family for family in pico.FAMILIES if FAMILIES[family].supports_narrowing]
ALL = [(f, h) for f in NARROWING for h in pico.HEADS_OF[f]]


def shape_of(model):
    family = family_of(model.config)
    config = model.config
    return config.hidden_size, config.num_attention_heads, getattr(config, family.ffn_key)


@pytest.mark.parametrize(("family", "head"), ALL)
def test_both_widths_of_every_head(family, head, tmp_path):
    model = pico.model_of(family, 200, head)
    heads = 2 if query_group(model.config) == 2 else 3
    cut = narrow(model, Widths(ffn=40, heads=heads))
    assert shape_of(cut.model) == (8 * heads, heads, 40)
    assert set(cut.differences) == {"keeping 40 ffn neurons", f"keeping {heads} heads", "stock model"}
    assert max(cut.differences.values()) < TOLERANCE
    assert type(cut.model) is type(model) and not cut.model.training
    cut.model.save_pretrained(tmp_path)
    again, info = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    batch = pico.padded_batch(model)
    assert torch.allclose(again.eval()(**batch)[0], cut.model(**batch)[0], atol=1e-6)
    assert AutoModel.from_pretrained(tmp_path).config.hidden_size == 8 * heads


def test_original_is_unchanged():
    model = pico.model_of("bert", 200)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    narrow(model, Widths(ffn=8, heads=1))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert not model.bert.encoder.layer[0].output.dense._forward_pre_hooks


def test_tied_decoder_stays_tied():
    cut = narrow(pico.model_of("bert", 200, "mlm"), Widths(heads=2)).model
    assert cut.cls.predictions.decoder.weight is cut.bert.embeddings.word_embeddings.weight
    assert cut.cls.predictions.decoder.weight.shape == (200, 16)


def test_neurons_of_zero_weight_are_removed_first():
    model = pico.model_of("bert", 200)
    layers = model.bert.encoder.layer
    for index, layer in enumerate(layers):
        dead = torch.arange(64)[index::4]  # different neurons in each layer
        for tensor in (layer.intermediate.dense.weight, layer.intermediate.dense.bias):
            tensor.data[dead] = 0
        layer.output.dense.weight.data[:, dead] = 0
    batch = pico.padded_batch(model)
    cut = narrow(model, Widths(ffn=48)).model
    assert torch.allclose(cut(**batch)[0], model(**batch)[0], atol=1e-5)


def test_both_halves_of_a_gated_neuron_are_cut():
    model = pico.model_of("modernbert", 200)
    for index, layer in enumerate(model.model.layers):
        dead = torch.arange(64)[index::4]
        layer.mlp.Wi.weight.data[dead] *= 1e-4  # of the first half alone: the gate of a cut neuron must go too
        layer.mlp.Wi.weight.data[64 + dead] *= 1e-4
        layer.mlp.Wo.weight.data[:, dead] = 0
    batch = pico.padded_batch(model)
    cut = narrow(model, Widths(ffn=48)).model
    assert cut.model.layers[0].mlp.Wi.weight.shape == (96, 32)
    assert torch.allclose(cut(**batch)[0], model(**batch)[0], atol=1e-5)


def test_heads_of_small_weight_are_removed_first():
    model = pico.model_of("bert", 200)
    chosen = []
    for index, layer in enumerate(model.bert.encoder.layer):
        attention, dead = layer.attention.self, slice(8 * index, 8 * index + 8)
        for linear in (attention.query, attention.key, attention.value):
            linear.weight.data[dead] *= 1e-3
        layer.attention.output.dense.weight.data[:, dead] *= 1e-3
        chosen.append(index)
    pruning = width._WidthPruning(model)
    pruning.cut_heads(3)
    removed = [
        torch.nonzero(mask == 0)[::8, 0].div(8, rounding_mode="floor").tolist() for mask in pruning.masks.values()
    ]
    assert removed == [[index] for index in chosen]


def test_hidden_dimensions_of_zero_weight_go_first():
    model = pico.model_of("bert", 200, "base")
    dead = torch.arange(8) * 4
    for name, tensor in model.named_parameters():
        if tensor.dim() == 1 and tensor.shape[0] == 32 and "self" not in name and "pooler" not in name:
            tensor.data[dead] = 0
        if tensor.dim() == 2 and tensor.shape[1] == 32 and "attention.output" not in name:
            tensor.data[:, dead] = 0
        if name.endswith("output.dense.weight"):
            tensor.data[dead] = 0
    alive = [i for i in range(32) if i % 4]
    cut = narrow(model, Widths(heads=3)).model
    expected = model.embeddings.word_embeddings.weight[:, alive]
    assert torch.equal(cut.embeddings.word_embeddings.weight, expected)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"ffn": 65}, "from 1 to 64"),
        ({"ffn": 0}, "from 1 to 64"),
        ({"heads": 5}, "from 1 to 4"),
        ({"heads": 0}, "from 1 to 4"),
        ({"hidden": 21}, "not 4 heads of at most 8 dimensions each; possible with fewer heads: 8, 16, 24; "),
        ({"hidden": 40}, "4 heads of at most 8 dimensions"),
        ({"hidden": 16, "heads": 3}, "3 heads of at most 8"),
        ({"hidden": 18, "heads": 2}, "2 heads of at most 8 dimensions"),
    ],
)
def test_invalid_widths(sizes, message):
    config = pico.config_of("bert", 100)
    with pytest.raises(UsageError, match=message):
        choose_widths(config, **{"ffn": None, "heads": None, "hidden": None} | sizes)


@pytest.mark.parametrize("family", sorted(set(pico.FAMILIES) - set(NARROWING)))
@pytest.mark.parametrize("size", ["ffn", "heads", "hidden"])
def test_families_without_narrowing(family, size):
    config = pico.config_of(family, 100)
    no_sizes = dict.fromkeys(("ffn", "heads", "hidden"))
    assert choose_widths(config, **no_sizes).empty
    with pytest.raises(UsageError, match=f"type {family}.*give --layers"):
        choose_widths(config, **no_sizes | {size: 16})


@given(st.integers(1, 16), st.integers(1, 8), st.data())
def test_hidden_size_and_heads_are_equivalent(heads, size, data):
    keep = data.draw(st.integers(1, heads))
    config = pico.config_of("bert", 100)
    config.hidden_size, config.num_attention_heads = heads * size, heads
    by_heads = choose_widths(config, None, keep, None)
    assert by_heads == choose_widths(config, None, None, keep * size) == choose_widths(config, None, keep, keep * size)
    changed = narrowed_config(config, by_heads)
    assert changed.hidden_size == keep * size and changed.hidden_size // changed.num_attention_heads == size


@given(st.integers(1, 16), st.integers(1, 8), st.data())
def test_hidden_size_of_narrower_heads(heads, size, data):
    config = pico.config_of("bert", 100)
    config.hidden_size, config.num_attention_heads = heads * size, heads
    kept, kept_size = data.draw(st.integers(1, heads)), data.draw(st.integers(1, size))
    changed = narrowed_config(config, choose_widths(config, None, kept, kept * kept_size))
    assert (changed.hidden_size, changed.num_attention_heads) == (kept * kept_size, kept)


@pytest.mark.parametrize("family", [family for family in NARROWING if not FAMILIES[family].keeps_head_size])
@pytest.mark.parametrize("widths", [Widths(head_size=5), Widths(heads=3, head_size=6, ffn=40)])
def test_narrower_heads(family, widths, tmp_path):
    model = pico.model_of(family, 200, "mlm")
    cut = narrow(model, widths)
    heads = widths.heads or 4
    assert shape_of(cut.model)[:2] == (heads * widths.head_size, heads)
    assert {"rotating the heads", f"keeping {widths.head_size} dimensions of each head"} <= set(cut.differences)
    assert max(cut.differences.values()) < TOLERANCE
    cut.model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path).eval()
    batch = pico.padded_batch(model)
    assert torch.allclose(again(**batch)[0], cut.model(**batch)[0], atol=1e-6)


@given(st.data())
@settings(max_examples=8)
def test_modernbert_of_any_shape(data):
    heads, size, ffn = (data.draw(st.integers(*span)) for span in ((2, 4), (1, 4), (3, 20)))
    layers, window = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    config = pico.config_of("modernbert", 50)
    config = type(config).from_dict(
        config.to_dict()
        | {"num_hidden_layers": layers, "layer_types": None, "hidden_size": heads * size * 2, "intermediate_size": ffn}
        | {"num_attention_heads": heads, "local_attention": 2 * window, "norm_bias": data.draw(st.booleans())}
    )
    model = ModernBertForSequenceClassification(config).eval()
    kept = sorted(data.draw(st.sets(st.integers(0, layers - 1), min_size=1)))
    shallow, difference = keep_layers(model, kept)
    assert difference < TOLERANCE
    widths = choose_widths(config, data.draw(st.integers(1, ffn)), data.draw(st.integers(1, heads)), None)
    assert max(narrow(shallow, widths).differences.values()) < TOLERANCE


@pytest.mark.parametrize("family", [family for family in NARROWING if FAMILIES[family].rotary])
def test_rotary_heads_keep_their_size(family):
    with pytest.raises(UsageError, match=r"positions rotate.*fewer heads: 8, 16, 24$"):
        choose_widths(pico.config_of(family, 100), None, None, 20)
    assert choose_widths(pico.config_of(family, 100), None, None, 16) == Widths(heads=2)


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.data())
@settings(max_examples=10, deadline=None)
def test_grouped_heads_are_cut_in_whole_groups(shared, group, half, data):
    config = pico.config_of("eurobert", 50)
    sizes = {"num_attention_heads": shared * group, "num_key_value_heads": shared, "head_dim": 2 * half}
    config = type(config)(**config.to_dict() | sizes | {"hidden_size": shared * group * 2 * half})
    model, kept = EuroBertModel(config).eval(), data.draw(st.integers(1, shared))
    dead = torch.arange(shared)[kept:]  # removed without any change of the outputs
    for layer in model.layers:
        output = layer.self_attn.o_proj.weight.data.view(-1, shared, group * 2 * half)
        output[:, dead] = 0
        layer.self_attn.v_proj.weight.data.view(shared, 2 * half, -1)[dead] *= 1e-3
        layer.self_attn.q_proj.weight.data.view(shared, group * 2 * half, -1)[dead] *= 1e-3
    pruning = SlicedPruning(model)
    pruning.cut_heads(kept * group)
    removed = dead.repeat_interleave(group * 2 * half) * group * 2 * half
    removed = removed + torch.arange(group * 2 * half).repeat(len(dead))
    assert all(torch.nonzero(mask == 0).flatten().tolist() == removed.tolist() for mask in pruning.masks.values())
    changed = narrowed_config(config, choose_widths(config, None, kept * group, None))
    assert (changed.num_attention_heads, changed.num_key_value_heads) == (kept * group, kept)
    assert changed.hidden_size == kept * group * changed.head_dim
    if group > 1:
        with pytest.raises(UsageError, match=f"{group} query heads share each key and value head"):
            choose_widths(config, None, 1, None)


def test_rotated_head_keeps_the_closest_product():
    layer = pico.model_of("bert", 200).bert.encoder.layer[0]
    attention, output = layer.attention.self, layer.attention.output.dense
    torch.nn.init.normal_(attention.query.bias)
    torch.nn.init.normal_(attention.key.bias)

    def products(dimensions):
        """The head's products of queries with keys, and of values with outputs, in float64."""
        affine = [
            torch.cat([part.weight, part.bias[:, None]], dim=1)[8:16][:dimensions].double()
            for part in (attention.query, attention.key, attention.value)
        ]
        return affine[0].T @ affine[1], affine[2].T @ output.weight[:, 8:16][:, :dimensions].double().T

    before = products(8)
    rotate_heads(layer, FAMILIES["bert"], 8)
    for product, whole, cut in zip(before, products(8), products(5), strict=True):
        assert torch.allclose(whole, product, atol=1e-6)
        lost = torch.linalg.svdvals(product)[5:].square().sum().sqrt()
        assert torch.linalg.norm(product - cut).item() == pytest.approx(lost.item(), rel=1e-4)


def test_full_sizes_are_no_cut():
    config = pico.config_of("distilbert", 100)
    assert choose_widths(config, 64, 4, 32).empty


def test_electra_keeps_its_projection():
    config = pico.config_of("electra", 100)
    with pytest.raises(
        UsageError, match=r"no projection.*give another --width, --heads or --hidden, or cut .* \(--embedding\)"
    ):
        choose_widths(config, None, 2, None)


def test_electra_without_projection_narrows_embeddings():
    from transformers import ElectraForMaskedLM

    config = pico.config_of("electra", 200)
    config.embedding_size = config.hidden_size
    assert isinstance(config, ElectraConfig)
    cut = narrow(ElectraForMaskedLM(config).eval(), Widths(heads=2)).model
    assert cut.config.embedding_size == cut.config.hidden_size == 16
    assert cut.generator_lm_head.weight is cut.electra.embeddings.word_embeddings.weight


def test_wrong_pruning_is_detected(monkeypatch):
    monkeypatch.setattr(width, "least_important", lambda scores, keep: list(range(len(scores) - keep)))
    right = width._WidthPruning._mask_channels
    monkeypatch.setattr(
        width._WidthPruning, "_mask_channels", lambda self, i, path, removed: right(self, i, path, removed[1:])
    )
    with pytest.raises(SqueezeError, match="keeping 32 ffn neurons changes the outputs"):
        narrow(pico.model_of("bert", 200), Widths(ffn=32))
