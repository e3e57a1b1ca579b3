"""The dropout of a training is that of every part of every family."""

import pytest
import torch

from biosqueeze.models.dropout import set_dropout
from biosqueeze.models.families import FAMILIES
from tests import pico


@pytest.mark.parametrize("family", list(FAMILIES))
@torch.no_grad()
def test_without_dropout_training_computes_the_same(family: str) -> None:
    model = pico.model_of(family, 60, head="base")
    batch = pico.padded_batch(model)
    expected = model(**batch).last_hidden_state
    model.train()
    set_dropout(model, 0.0)
    assert torch.equal(model(**batch).last_hidden_state, expected)
    set_dropout(model, 0.5)
    assert not torch.allclose(model(**batch).last_hidden_state, expected)


@pytest.mark.parametrize("family", ["longformer", "modernbert", "eurobert"])
def test_attention_has_the_dropout_too(family: str) -> None:
    """Their attention has a number, and no module."""
    model = pico.model_of(family, 60, head="base")
    numbers = ("dropout", "attention_dropout")
    found = [vars(module)[name] for module in model.modules() for name in numbers if name in vars(module)]
    assert len(found) == pico.LAYERS
    set_dropout(model, 0.25)
    assert {vars(module)[name] for module in model.modules() for name in numbers if name in vars(module)} == {0.25}
