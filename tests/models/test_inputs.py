"""Inputs of packed blocks, and the positions that they count from."""

import pytest
import torch
import transformers

from biosqueeze.models.families import FAMILIES, first_position, longest_input
from biosqueeze.models.inputs import model_inputs
from tests import pico


@pytest.mark.parametrize("padding", [0, 1, 3])
def test_positions_count_from_the_padding_of_the_config(padding):
    config = pico.config_of("roberta", 60)
    config.pad_token_id, config.max_position_embeddings = padding, 20 + padding + 1
    model = transformers.RobertaModel._from_config(config, attn_implementation="sdpa").eval()
    length = longest_input(config)
    assert length == 20 and longest_input(config.to_dict()) == 20
    ids = torch.randint(5, 60, (2, length))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    packed = batch | {"segments": torch.ones_like(ids), "positions": torch.arange(length).expand(2, -1)}
    torch.testing.assert_close(model(**model_inputs(model, packed)).last_hidden_state, model(**batch).last_hidden_state)


@pytest.mark.parametrize("family", pico.FAMILIES)
def test_first_position_is_that_of_the_family_by_default(family):
    assert first_position({"model_type": family}) == FAMILIES[family].first_position
    assert first_position(pico.config_of(family, 60)) == FAMILIES[family].first_position


def test_first_position_of_mpnet_is_fixed():
    assert first_position({"model_type": "mpnet", "pad_token_id": 0}) == 2
