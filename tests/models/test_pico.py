"""Assumptions of the other tests about the pico checkpoints."""

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from biosqueeze.models import families
from tests import pico


def test_every_family_loads_in_stock_transformers(pico_any):
    model, info = AutoModel.from_pretrained(pico_any, output_loading_info=True)
    assert {k.split(".")[0] for k in info["missing_keys"]} <= {"pooler"}
    tokenizer = AutoTokenizer.from_pretrained(pico_any)
    batch = tokenizer(list(pico.sentences(3)), return_tensors="pt", padding=True)
    assert batch["input_ids"].max() < model.config.vocab_size
    out = model(**batch).last_hidden_state
    assert torch.isfinite(out).all() and out.shape[-1] == pico.HIDDEN


@pytest.mark.parametrize("family", pico.FAMILIES)
def test_no_word_is_unknown(family):
    tokenizer = pico.tokenizer_of(family)
    ids = tokenizer("BRCA1 mutation in Hepatitis (p53, -7%).")["input_ids"]
    assert tokenizer.unk_token_id not in ids
    assert "BRCA" in tokenizer.decode(ids)


def test_every_family_has_a_pico_model():
    assert set(pico.FAMILIES) == set(families.FAMILIES)
