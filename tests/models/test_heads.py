"""The vocabulary projection of selected rows, and that padding changes no logits."""

import pytest
import torch
import transformers

from biosqueeze.errors import SqueezeError
from biosqueeze.models.heads import mlm_logits, vocabulary_parameters
from biosqueeze.training.chunked_loss import ChunkedTerms, sum_in_chunks
from tests import pico


@pytest.mark.parametrize("family", pico.FAMILIES)
def test_logits_of_some_rows_equal_the_model(family):
    model = pico.model_of(family, 200, "mlm")
    batch = pico.padded_batch(model)
    chosen = (batch["attention_mask"] == 1) & (batch["input_ids"] % 3 == 0)
    with torch.no_grad():
        actual = mlm_logits(model, pico.last_hidden(model, batch)[chosen])
        expected = model(**batch).logits[chosen]
    assert chosen.sum() > 5 and torch.allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize("family", pico.FAMILIES)
def test_gradients_of_some_rows_reach_the_whole_head(family):
    model = pico.model_of(family, 200, "mlm")
    batch = pico.padded_batch(model)
    model(**batch).logits[0, 0].logsumexp(-1).backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    hidden = model.base_model(**batch)[0]
    mlm_logits(model, hidden[0, :1]).logsumexp(-1).sum().backward()
    actual = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert actual.keys() == expected.keys()
    assert all(torch.allclose(actual[name], expected[name], atol=1e-5) for name in expected)


@pytest.mark.parametrize("family", [*pico.FAMILIES, "published deberta-v2"])
def test_chunks_give_the_gradients_of_all_rows_at_once(family):
    config = pico.config_of(family.split()[-1], 60)
    config.update(pico.DEBERTA_V2 if family.startswith("published") else {})
    model = getattr(transformers, pico.class_of(config.model_type, "mlm"))(config)
    hidden = torch.randn(5, config.hidden_size)
    gradients = []
    for rows in (5, 2):
        model.zero_grad()
        terms = ChunkedTerms(lambda part, _: mlm_logits(model, part).logsumexp(-1).sum()[None], [1.0], rows)
        sum_in_chunks(terms, hidden.clone().requires_grad_(), vocabulary_parameters(model)).sum().backward()
        gradients.append([torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()])
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*gradients, strict=True))


def test_unknown_family():
    model = pico.model_of("bert", 200, "mlm")
    model.config.model_type = "mystery"
    with pytest.raises(SqueezeError, match="type 'mystery' are not supported"):
        mlm_logits(model, torch.zeros(1, 32))


@pytest.mark.parametrize("family", pico.FAMILIES)
def test_padding_changes_no_logits(family):
    model = pico.model_of(family, 200, "mlm")
    batch = pico.padded_batch(model)
    with torch.no_grad():
        together = model(**batch).logits
        for row, mask in enumerate(batch["attention_mask"]):
            length = int(mask.sum())
            alone = model(input_ids=batch["input_ids"][row : row + 1, :length]).logits[0]
            assert torch.allclose(together[row, :length], alone, atol=1e-5)
