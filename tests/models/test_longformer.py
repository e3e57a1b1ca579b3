"""Longformer: windows and tokens with global attention, and the dense form of its attention for exporters and cuts."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from biosqueeze.errors import UsageError
from biosqueeze.models.custom_heads.encoder import HeadedEncoder
from biosqueeze.models.cuts.depth import keep_layers
from biosqueeze.models.cuts.width import Widths, choose_widths, narrow
from biosqueeze.models.families import longest_input
from biosqueeze.models.layers import attention_window
from biosqueeze.models.loading.load import new_model
from biosqueeze.models.longformer import global_tokens, use_dense_attention
from biosqueeze.models.named.presets import find_preset
from biosqueeze.models.named.students import student_config
from tests import pico

SEPARATOR = 2  # as in the config of stock transformers


def question_answering():
    """A model for question answering as it is loaded, and the stock one with the same weights."""
    config = pico.config_of("longformer", 60)
    model = new_model(copy.deepcopy(config), "LongformerForQuestionAnswering", seed=0)
    stock = type(model)(model.config).eval()
    stock.load_state_dict(model.state_dict())
    return model, stock


@given(st.integers(1, 30), st.sampled_from([4, 8, 12]), st.sampled_from(pico.HEADS_OF["longformer"]))
@settings(max_examples=12, deadline=None)
@torch.no_grad()
def test_dense_attention_has_the_stock_outputs(length, window, head):
    config = pico.config_of("longformer", 60)
    config.attention_window = [window, 4, window, 4]
    model = new_model(config, pico.class_of("longformer", head), seed=0)
    dense = use_dense_attention(copy.deepcopy(model))
    batch = pico.padded_batch(model, rows=2, length=length + 3)
    assert torch.allclose(dense(**batch)[0], model(**batch)[0], atol=1e-5)


@torch.no_grad()
def test_question_has_global_attention():
    model, stock = question_answering()
    ids = torch.tensor([[0, 5, 6, SEPARATOR, SEPARATOR, 7, 8, 9, 10, 11, SEPARATOR]])
    marked = torch.zeros_like(ids)
    marked[:, :3] = 1
    outputs = model(input_ids=ids)
    assert torch.equal(outputs.start_logits, stock(ids).start_logits)
    assert torch.equal(outputs.start_logits, stock(ids, global_attention_mask=marked).start_logits)
    other = model(input_ids=ids, global_attention_mask=torch.zeros_like(ids)).start_logits
    assert not torch.allclose(other, outputs.start_logits)
    dense = use_dense_attention(copy.deepcopy(model))
    assert torch.allclose(dense(input_ids=ids).end_logits, outputs.end_logits, atol=1e-5)
    plain = ids.masked_fill(ids == SEPARATOR, 12)  # without a question, where the stock class stops
    assert torch.equal(model(input_ids=plain).end_logits, stock(plain, global_attention_mask=0 * ids).end_logits)


def test_relations_have_global_attention_on_markers():
    entities = torch.tensor([[0, 0, 1, 1, 0, 2, 2, 0], [0, 3, 3, 2, 0, 0, 0, 0]])
    assert global_tokens(entities).tolist() == [[1, 0, 1, 0, 0, 1, 0, 0], [1, 1, 0, 0, 0, 0, 0, 0]]


@torch.no_grad()
def test_relation_head_reads_them():
    model = HeadedEncoder(pico.model_of("longformer", 60, "base"), "mentions", labels=2).eval()
    ids = torch.randint(5, 60, (1, 12))
    entities = torch.zeros_like(ids)
    entities[0, 3], entities[0, 9] = 1, 2
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    states = model.encoder(**inputs, global_attention_mask=global_tokens(entities))[0]
    assert torch.equal(
        model(entities=entities, **inputs).logits, model.head(states, inputs["attention_mask"], entities)
    )


def test_windows_stay_with_their_layers():
    config = pico.config_of("longformer", 60)
    config.attention_window = [8, 4, 8, 4]
    model = new_model(copy.deepcopy(config), "LongformerForMaskedLM", seed=0)
    shallow, difference = keep_layers(model, (0, 1, 3))
    assert shallow.config.attention_window == [8, 4, 4] and difference < 1e-5
    assert [attention_window(model.config, depth) for depth in (1, 2)] == [4, 2]
    assert student_config(config, find_preset("minilm-l6")).attention_window == [8, 4, 8, 4, 4, 4]
    config.attention_window = 16  # one number for all layers
    assert student_config(config, find_preset("distil")).attention_window == [16, 16]
    assert attention_window(config, 4) == 8


@torch.no_grad()
def test_global_projections_are_cut_with_the_heads():
    model = pico.model_of("longformer", 60, "sequence-classification")
    for layer in model.longformer.encoder.layer:
        for linear in (getattr(layer.attention.self, f"{part}_global") for part in ("query", "key", "value")):
            linear.weight[:8] *= 100  # the most important head by its global projections alone
    cut = narrow(model, Widths(heads=1)).model
    assert cut.longformer.encoder.layer[0].attention.self.query_global.weight.abs().mean() > 1


def test_documents_of_4096_tokens_are_one_input():
    config = pico.config_of("longformer", 60)
    config.max_position_embeddings, config.attention_window, config.num_hidden_layers = 4098, 512, 1
    assert longest_input(config) == 4096
    model = new_model(config, "LongformerForTokenClassification", seed=0)
    ids = torch.randint(5, 60, (1, 4096))
    with torch.no_grad():
        assert model(input_ids=ids).logits.shape[:2] == (1, 4096)


def test_heads_are_not_narrowed():
    config = pico.config_of("longformer", 60)
    assert choose_widths(config, None, None, 8) == Widths(heads=1)
    with pytest.raises(UsageError, match="which two projections share; with fewer heads: 8, 16, 24"):
        choose_widths(config, None, None, 20)
