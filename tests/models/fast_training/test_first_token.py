"""The last layer for the first token alone, against the stock one: logits, gradients, and when it is used."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from biosqueeze.finetuning.learner import FineTuner
from biosqueeze.models.fast_training.attention import FIRST_ALONE, attention_forward, training_attention
from biosqueeze.models.fast_training.fast_layers import FAMILIES
from biosqueeze.models.fast_training.first_token import first_token_alone, reads_first_token
from biosqueeze.models.hooks import HiddenStateHooks
from biosqueeze.training.encoder_layers import training_layers
from biosqueeze.training.options import TrainingOptions
from tests import pico

CLASSIFIER = "sequence-classification"
PADDED = {
    "input_ids": torch.randint(5, 90, (3, 11), generator=torch.Generator().manual_seed(0)),
    "attention_mask": (torch.arange(11) < torch.tensor([[11], [4], [1]])).long(),
}


def classifier(family: str) -> PreTrainedModel:
    model: PreTrainedModel = pico.model_of(family, 100, CLASSIFIER).double()
    return model


def gradients(model: PreTrainedModel, logits: Tensor) -> list[Tensor]:
    parameters = [each for each in model.parameters() if each.requires_grad]
    found = torch.autograd.grad(logits.square().sum(), parameters, allow_unused=True)
    return [torch.zeros_like(each) if one is None else one for each, one in zip(parameters, found, strict=True)]


@pytest.mark.parametrize("attention", [nullcontext, training_attention])
@pytest.mark.parametrize("family", [family for family in pico.FAMILIES if family in FAMILIES])
def test_logits_and_gradients_are_those_of_stock(family: str, attention: Any) -> None:
    model = classifier(family)
    expected = model(**PADDED).logits
    with attention(model), first_token_alone(model):
        output = model(**PADDED, output_hidden_states=True)
    assert output.hidden_states[-1].shape == (3, 1, pico.HIDDEN)
    torch.testing.assert_close(output.logits, expected, rtol=0, atol=1e-12)
    for ours, stock in zip(gradients(model, output.logits), gradients(model, expected), strict=True):
        torch.testing.assert_close(ours, stock, rtol=1e-9, atol=1e-12)
    assert model(**PADDED, output_hidden_states=True).hidden_states[-1].shape == (3, 11, pico.HIDDEN)


@pytest.mark.parametrize("mask", [None, PADDED["attention_mask"].bool()[:, None, None], torch.ones(3, 1, 11, 11) > 0])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_attention_of_the_first_query(mask: Tensor | None, dropout: float) -> None:
    """The other queries have its result, and none is computed for them: with dropout fewer masks are drawn."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(3, 4, 11, 8, requires_grad=True) for _ in range(3))
    module = torch.nn.Module()
    module.is_causal = False
    torch.manual_seed(1)
    alone, _ = attention_forward(module, query[:, :, :1], key, value, mask if mask is None else mask[:, :, :1])
    expected, _ = attention_forward(module, query, key, value, mask)
    torch.testing.assert_close(alone[:, 0], expected[:, 0])
    setattr(module, FIRST_ALONE, True)
    torch.manual_seed(1)
    found, _ = attention_forward(module, query, key, value, mask, dropout=dropout)
    assert found.shape == expected.shape
    assert all(torch.equal(found[:, number], found[:, 0]) for number in range(11))
    if not dropout:
        torch.testing.assert_close(found[:, 0], expected[:, 0])


def test_queries_and_keys_are_those_of_all_tokens() -> None:
    model = classifier("bert")
    hooks = HiddenStateHooks(model, {pico.LAYERS: frozenset({"query", "key", "value"})})
    with hooks.capture() as stock:
        model(**PADDED)
    with first_token_alone(model), hooks.capture() as states:
        model(**PADDED)
    assert states.keys() == stock.keys() == {pico.LAYERS}
    for part, state in stock[pico.LAYERS].items():
        assert torch.equal(states[pico.LAYERS][part], state)


@pytest.mark.parametrize(
    ("family", "head", "expected"),
    [
        ("bert", CLASSIFIER, True),
        ("bert", "token-classification", False),
        ("bert", "question-answering", False),
        ("bert", None, False),
        ("distilbert", CLASSIFIER, False),
        ("albert", CLASSIFIER, False),
    ],
)
def test_only_classifiers_with_layers_of_bert(family: str, head: str | None, expected: bool) -> None:
    model = pico.model_of(family, 100, head)
    learner = FineTuner(model)
    assert reads_first_token(model) is learner.reads_first_token is expected
    with training_layers(learner, TrainingOptions(), 1):
        output = model(**PADDED, output_hidden_states=True)
    assert output.hidden_states[-1].shape[1] == (1 if expected else 11)
