"""Export of families that are not supported: through transformers and torch.onnx, compared as all others are."""

import json

import numpy as np
import pytest
import torch
import transformers

from biosqueeze.backends.onnxruntime import OnnxPredictor
from tests import pico
from tests.layouts import edit_json

SHAPE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(scope="module")
def prelayernorm(tmp_path_factory):
    """RoBERTa with its norms before the layers: a family of transformers that biosqueeze does not support."""
    path = tmp_path_factory.mktemp("other") / "prelayernorm"
    tokenizer = pico.tokenizer_of("roberta")
    config = transformers.RobertaPreLayerNormConfig(
        vocab_size=len(tokenizer), max_position_embeddings=130, type_vocab_size=1, num_labels=3, **SHAPE
    )
    torch.manual_seed(0)
    transformers.RobertaPreLayerNormForTokenClassification(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.mark.slow
def test_graph_equals_transformers(prelayernorm, shell, tmp_path):
    result = shell("export", prelayernorm, "--out", tmp_path / "graph")
    assert result.code == 0, result.err
    assert "of the family roberta-prelayernorm, which biosqueeze does not support" in result.err
    model = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "graph").eval()
    batch = pico.padded_batch(model)
    with torch.no_grad():
        expected = model(**batch).logits.numpy()
    feed = {name: tensor.numpy() for name, tensor in batch.items()}
    actual = OnnxPredictor(tmp_path / "graph" / "onnx" / "model.onnx").predict(feed)
    real = feed["attention_mask"] == 1
    np.testing.assert_allclose(actual[real], expected[real], atol=2e-5)
    assert (
        json.loads((tmp_path / "graph" / "biosqueeze.json").read_text())["metrics"]["export"]["max_difference"] < 1e-4
    )


def test_plan_says_that_the_family_is_another(prelayernorm, shell):
    result = shell("export", prelayernorm, "--dry-run")
    assert result.code == 0, result.err
    assert "no other command takes the result" in result.err


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "biosqueeze exports encoders"),
        ({"is_encoder_decoder": True}, "biosqueeze exports encoders"),
        ({"architectures": None}, "has no architectures in config.json"),
        ({"architectures": ["MysteryModel"]}, "transformers has no MysteryModel"),
        ({"architectures": ["RobertaPreLayerNormForMaskedLM"]}, "lacks weights of RobertaPreLayerNormForMaskedLM"),
        ({"hidden_size": 32}, "transformers cannot load"),
    ],
)
def test_what_cannot_be_exported_is_explained(prelayernorm, shell, tmp_path, changes, says):
    path = tmp_path / "changed"
    path.mkdir()
    for file in prelayernorm.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    edit_json(path / "config.json", **changes)
    result = shell("export", path, "--out", tmp_path / "graph")
    assert result.code == 1 and says in result.err, result.err
    assert not (tmp_path / "graph").exists()


def test_an_error_of_the_exporter_is_explained(prelayernorm, shell, tmp_path, monkeypatch):
    from biosqueeze.backends import onnx_other

    def failing(model, path, **_):
        path.parent.mkdir(parents=True)
        raise RuntimeError("no such operator\nadvice")

    monkeypatch.setattr(onnx_other, "write_onnx", failing)
    result = shell("export", prelayernorm, "--out", tmp_path / "graph")
    assert result.code == 1
    assert "torch.onnx cannot export" in result.err and "(no such operator)" in result.err
    assert not (tmp_path / "graph").exists()
