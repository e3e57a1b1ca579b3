"""The vocabulary projection on some rows, and that padding changes nothing that is read."""

import pytest
import torch

from biosqueeze.errors import SqueezeError
from biosqueeze.models.heads import mlm_logits
from biosqueeze.models.verify import last_hidden
from tests import pico


@pytest.mark.parametrize("family", pico.FAMILIES)
def test_logits_of_some_rows_are_those_of_the_model(family):
    model = pico.model_of(family, 200, "mlm")
    batch = pico.padded_batch(model)
    chosen = (batch["attention_mask"] == 1) & (batch["input_ids"] % 3 == 0)
    with torch.no_grad():
        found = mlm_logits(model, last_hidden(model, batch)[chosen])
        wanted = model(**batch).logits[chosen]
    assert chosen.sum() > 5 and torch.allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("family", pico.FAMILIES)
def test_gradients_of_some_rows_reach_every_part_of_the_head(family):
    model = pico.model_of(family, 200, "mlm")
    batch = pico.padded_batch(model)
    model(**batch).logits[0, 0].logsumexp(-1).backward()
    wanted = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    hidden = model.base_model(**batch)[0]
    mlm_logits(model, hidden[0, :1]).logsumexp(-1).sum().backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert found.keys() == wanted.keys()
    assert all(torch.allclose(found[name], wanted[name], atol=1e-5) for name in wanted)


def test_a_head_that_is_unknown():
    model = pico.model_of("bert", 200, "mlm")
    model.config.model_type = "mystery"
    with pytest.raises(SqueezeError, match="mystery has no masked"):
        mlm_logits(model, torch.zeros(1, 32))


@pytest.mark.parametrize("family", pico.FAMILIES)
def test_padding_changes_no_real_token(family):
    model = pico.model_of(family, 200, "mlm")
    batch = pico.padded_batch(model)
    with torch.no_grad():
        together = model(**batch).logits
        for row, mask in enumerate(batch["attention_mask"]):
            length = int(mask.sum())
            alone = model(input_ids=batch["input_ids"][row : row + 1, :length]).logits[0]
            assert torch.allclose(together[row, :length], alone, atol=1e-5)
