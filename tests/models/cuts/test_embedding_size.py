"""Smaller embeddings of ELECTRA and ALBERT: which dimensions are kept, and the projection that is fitted."""

import copy
from collections.abc import Iterator
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


def places(model: Any) -> Iterator[tuple[torch.Tensor, int]]:
    """The tokens in sequences as long as the positions, and their type: types take turns."""
    for number, ids in enumerate(torch.arange(TOKENS).split(model.config.max_position_embeddings)):
        yield ids, number % 2


def inputs_of(model: Any) -> np.ndarray[Any, Any]:
    """The normed embeddings of every token."""
    with torch.no_grad():
        rows = [model.base_model.embeddings(ids[None], token_type_ids=torch.full((1, len(ids)), kind))[0]
                for ids, kind in places(model)]  # fmt: skip
    return torch.cat(rows).double().numpy()


def projected(model: Any, inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    layer = model.base_model.get_submodule(PROJECTIONS[model.config.model_type])
    return inputs @ layer.weight.detach().double().numpy().T + layer.bias.detach().double().numpy()


def directions(model: Any) -> np.ndarray[Any, Any]:
    """The embeddings of every token before the norm, with a mean of zero and a length of one."""
    layer = model.base_model.embeddings
    tables = [layer.word_embeddings, layer.position_embeddings, layer.token_type_embeddings]
    words, positions, types = (table.weight.detach().double().numpy() for table in tables)
    rows = np.concatenate([words[ids] + positions[: len(ids)] + types[kind] for ids, kind in places(model)])
    rows -= rows.mean(1, keepdims=True)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def counts() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).geometric(0.2, TOKENS) - 1)


def altered(family: str, head: str) -> Any:
    """A model whose norm and projection are not those of a new one."""
    model = pico.model_of(family, TOKENS, head)
    layers = [model.base_model.embeddings.LayerNorm, model.base_model.get_submodule(PROJECTIONS[family])]
    torch.manual_seed(1)
    with torch.no_grad():
        for layer in layers:
            layer.weight += 0.3 * torch.randn_like(layer.weight)
            layer.bias += 0.3 * torch.randn_like(layer.bias)
    return model


@pytest.mark.parametrize(("family", "head"), HEADS)
def test_the_projection_is_the_best_one(family: str, head: str, counts: torch.Tensor, tmp_path: Path) -> None:
    model = altered(family, head)
    before, former = copy.deepcopy(model.state_dict()), model.config.embedding_size
    cut = keep_embedding_size(model, former // 2, counts)
    assert cut.model.config.embedding_size == former // 2 < former == model.config.embedding_size
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    rows, target = inputs_of(cut.model), projected(model, inputs_of(model))
    weights = counts.double().numpy()[:, None] + 0.5
    # The norm makes its outputs and 1 linearly dependent, up to rounding in float32.
    extended, root = np.c_[rows, np.ones(len(rows))], np.sqrt(weights)
    best = extended @ np.linalg.lstsq(extended * root, target * root, rcond=1e-5)[0]
    np.testing.assert_allclose(projected(cut.model, rows), best, atol=1e-4)
    mean = (weights * target).sum(0) / weights.sum()
    explained = 1 - (weights * (target - best) ** 2).sum() / (weights * (target - mean) ** 2).sum()
    assert cut.explained == pytest.approx(explained, abs=1e-5)
    assert cut.explained > keep_embedding_size(model, former // 2, counts, fits=False).explained
    cut.model.save_pretrained(tmp_path)
    loaded = type(cut.model).from_pretrained(tmp_path).eval()
    batch = {"input_ids": torch.tensor([[5, 6, 7], [8, 9, 0]]), "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]])}
    with torch.no_grad():
        torch.testing.assert_close(loaded(**batch)[0], cut.model(**batch)[0], rtol=0, atol=0)
    if head == "mlm":
        assert loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight


@pytest.mark.parametrize("family", PROJECTIONS)
def test_tied_dimensions_are_chosen(family: str, counts: torch.Tensor) -> None:
    model = altered(family, "mlm")
    kept_size = model.config.embedding_size // 2
    layer = model.base_model.get_submodule(PROJECTIONS[family])
    squares = (inputs_of(model) ** 2 * (counts.double().numpy()[:, None] + 0.5)).sum(0)
    scores = squares * (layer.weight.detach().double().numpy() ** 2).sum(0)
    kept = sorted(np.argsort(-scores)[:kept_size])
    cut = keep_embedding_size(model, kept_size, counts).model
    assert torch.equal(cut.get_input_embeddings().weight, model.get_input_embeddings().weight[:, kept])


@pytest.mark.parametrize("family", PROJECTIONS)
def test_others_become_principal_components(family: str, counts: torch.Tensor) -> None:
    model = altered(family, "token-classification")
    size = model.config.embedding_size // 2
    rows, norm = directions(model), model.base_model.embeddings.LayerNorm
    values, vectors = np.linalg.eigh((rows * (counts.double().numpy()[:, None] + 0.5)).T @ rows)
    largest = vectors[:, np.argsort(-values)[: size - 1]]
    rows = rows @ largest @ largest.T
    rows *= np.sqrt(model.config.embedding_size) / np.linalg.norm(rows, axis=1, keepdims=True)
    expected = projected(model, rows * norm.weight.detach().numpy() + norm.bias.detach().numpy())
    cut = keep_embedding_size(model, size, counts, fits=False).model
    np.testing.assert_allclose(projected(cut, inputs_of(cut)), expected, atol=1e-4)


@pytest.mark.parametrize("family", PROJECTIONS)
def test_embeddings_of_few_dimensions_lose_nothing(family: str) -> None:
    model = altered(family, "token-classification")
    layer, size = model.base_model.embeddings, model.config.embedding_size // 2
    factor = torch.randn(size - 1, model.config.embedding_size)
    with torch.no_grad():
        for table in (layer.word_embeddings, layer.position_embeddings, layer.token_type_embeddings):
            table.weight.copy_(torch.randn(len(table.weight), size - 1) @ factor)
    cut = keep_embedding_size(model, size)
    assert cut.explained > 1 - 1e-8
    batch = pico.padded_batch(model)
    real = batch["attention_mask"] == 1
    with torch.no_grad():
        torch.testing.assert_close(cut.model(**batch)[0][real], model(**batch)[0][real], atol=1e-4, rtol=1e-4)


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
        ("mobilebert", 8, "embeddings of a mobilebert keep their size"),
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
