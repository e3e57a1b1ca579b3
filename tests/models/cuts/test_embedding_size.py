"""Smaller embeddings of ELECTRA and ALBERT: which dimensions are kept, and the projection that is fitted."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from biosqueeze.errors import UsageError
from biosqueeze.models.cuts.embedding_size import embedding_config, keep_embedding_size
from tests import pico

TOKENS = 300
PROJECTIONS = {"electra": "embeddings_project", "albert": "encoder.embedding_hidden_mapping_in"}
HEADS = [(family, head) for family in PROJECTIONS for head in ("mlm", "token-classification", "base")]


def inputs_of(model: Any) -> np.ndarray[Any, Any]:
    """The normed embeddings of every token, in sequences as long as the positions, of types in turn."""
    length = model.config.max_position_embeddings
    rows = []
    for number, ids in enumerate(torch.arange(TOKENS).split(length)):
        ids = torch.cat([ids, torch.zeros(length - len(ids), dtype=torch.long)])
        with torch.no_grad():
            states = model.base_model.embeddings(ids[None], token_type_ids=torch.full((1, length), number % 2))
        rows.append(states[0].double().numpy())
    return np.concatenate(rows)


def projected(model: Any, inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    layer = model.base_model.get_submodule(PROJECTIONS[model.config.model_type])
    return inputs @ layer.weight.detach().double().numpy().T + layer.bias.detach().double().numpy()


@pytest.mark.parametrize(("family", "head"), HEADS)
def test_the_projection_is_the_best_of_the_kept_dimensions(family: str, head: str, tmp_path: Path) -> None:
    model = pico.model_of(family, TOKENS, head)
    before, former = copy.deepcopy(model.state_dict()), model.config.embedding_size
    cut = keep_embedding_size(model, former // 2)
    assert cut.model.config.embedding_size == former // 2 < former == model.config.embedding_size
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    inputs = inputs_of(model)
    layer = model.base_model.get_submodule(PROJECTIONS[family])
    scores = (inputs**2).sum(0) * (layer.weight.detach().double().numpy() ** 2).sum(0)
    kept = sorted(np.argsort(-scores)[: former // 2])
    words = model.get_input_embeddings().weight
    assert torch.equal(cut.model.get_input_embeddings().weight, words[:, kept])
    rows, target = inputs_of(cut.model), projected(model, inputs)
    # The norm makes its outputs and 1 linearly dependent, up to rounding in float32.
    solution = np.linalg.lstsq(np.c_[rows, np.ones(len(rows))], target, rcond=1e-5)[0]
    best = np.c_[rows, np.ones(len(rows))] @ solution
    np.testing.assert_allclose(projected(cut.model, rows), best, atol=1e-4)
    explained = 1 - ((target - best) ** 2).sum() / ((target - target.mean(0)) ** 2).sum()
    assert cut.explained == pytest.approx(explained, abs=1e-6)
    assert cut.explained > keep_embedding_size(model, former // 2, fits=False).explained
    cut.model.save_pretrained(tmp_path)
    loaded = type(cut.model).from_pretrained(tmp_path).eval()
    batch = {"input_ids": torch.tensor([[5, 6, 7], [8, 9, 0]]), "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]])}
    with torch.no_grad():
        torch.testing.assert_close(loaded(**batch)[0], cut.model(**batch)[0], rtol=0, atol=0)
    if head == "mlm":
        assert loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight


def test_embeddings_of_the_hidden_size_get_a_projection() -> None:
    config = pico.config_of("electra", TOKENS)
    config.embedding_size = config.hidden_size
    model = transformers.ElectraModel(config).eval()
    cut = keep_embedding_size(model, config.hidden_size - 1)
    assert cut.model.embeddings_project.weight.shape == (config.hidden_size, config.hidden_size - 1)
    assert 0.9 < cut.explained < 1
    assert 0 < keep_embedding_size(model, config.hidden_size - 1, fits=False).explained < cut.explained


@pytest.mark.parametrize(
    ("family", "size", "message"),
    [
        ("bert", 8, r"cuts an ELECTRA or ALBERT.*--hidden"),
        ("mobilebert", 8, "cuts an ELECTRA or ALBERT"),
        ("albert", 0, "cannot be cut from"),
        ("electra", 10_000, "cannot be cut from"),
    ],
)
def test_sizes_that_cannot_be_cut(family: str, size: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        embedding_config(pico.config_of(family, TOKENS), size)


def test_an_electra_keeps_its_projection() -> None:
    config = transformers.ElectraConfig(hidden_size=32, num_attention_heads=2, embedding_size=64)
    with pytest.raises(UsageError, match="would equal the hidden size"):
        embedding_config(config, 32)
    assert embedding_config(config, 31).embedding_size == 31
