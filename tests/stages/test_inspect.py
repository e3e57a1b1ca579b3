"""inspect: facts of checkpoints, read from headers alone."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.models.families import FAMILIES
from biosqueeze.models.loading.load import load_model
from tests import pico
from tests.layouts import edit_json


def facts_of(shell, *words):
    said = shell("inspect", *words, "--json")
    assert said.code == 0, said.err
    return json.loads(said.out)


@pytest.mark.parametrize(("family", "head"), [(f, h) for f in pico.FAMILIES for h in pico.HEADS_OF[f]])
def test_parameters_are_those_of_the_model(shell, tmp_path, family, head):
    path = pico.save(family, tmp_path / "model", head=head)
    facts = facts_of(shell, path)
    model = load_model(open_checkpoint(str(path))).model
    assert facts["parameters"]["total"] == sum(p.numel() for p in model.parameters())
    assert facts["family"] == family
    paths = (FAMILIES[family].layers, FAMILIES[family].final_norm, FAMILIES[family].shared_bias)
    modules = [model.base_model.get_submodule(path) for path in paths if path]
    inside = sum(p.numel() for module in modules for p in module.parameters())
    assert facts["parameters"]["attention"] + facts["parameters"]["ffn"] == inside
    shape = {"layers": 4, "hidden": 32, "heads": 4, "ffn": 64, "vocabulary": model.config.vocab_size}
    assert facts["shape"] | shape == facts["shape"]


def test_no_tensor_is_loaded(shell, pico_bert, monkeypatch):
    monkeypatch.setattr("safetensors.torch.load_file", None)
    monkeypatch.setattr("torch.load", None)
    assert facts_of(shell, pico_bert)["parameters"]["total"]


def test_tied_tensors_count_once(shell, pico_bert, tmp_path):
    path = Path(shutil.copytree(pico_bert, tmp_path / "copy"))
    tensors = load_file(path / "model.safetensors")
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
    tensors["bert.embeddings.position_ids"] = torch.arange(pico.POSITIONS)[None]
    save_file(tensors, path / "model.safetensors")
    assert facts_of(shell, path)["parameters"] == facts_of(shell, pico_bert)["parameters"]
    edit_json(path / "config.json", tie_word_embeddings=False)
    more = facts_of(shell, path)["parameters"]["head"] - facts_of(shell, pico_bert)["parameters"]["head"]
    assert more == tensors["cls.predictions.decoder.weight"].numel()


def test_answer_is_on_stdout_and_nothing_is_written(shell, pico_bert):
    before = sorted(pico_bert.rglob("*"))
    said = shell("inspect", pico_bert)
    assert (said.code, said.err) == (0, "")
    assert sorted(pico_bert.rglob("*")) == before
    for words in ("embeddings", "attention", "ffn", "head", "cased", "MB"):
        assert words in said.out
    assert shell("inspect", pico_bert, "--quiet").out == said.out


def test_labels_task_history_and_artefacts(shell, pico_ner):
    shell("shrink", pico_ner, "--layers", "2", "--out", "small")
    Path("small/onnx").mkdir()
    Path("small/onnx/model.onnx").write_bytes(b"x" * 2_000_000)
    Path("small/results").mkdir()
    Path("small/results/bench.json").write_text("{}")
    facts = facts_of(shell, "small")
    assert facts["labels"] == list(pico.LABELS) and facts["head"] == "token-classification"
    assert facts["megabytes"]["onnx/model"] == 2.0
    whole = sum(file.stat().st_size for file in Path("small").rglob("*") if file.is_file())
    assert facts["megabytes"]["total"] == round(whole / 1e6, 3)
    assert facts["results"] == ["bench"]
    (line,) = facts["history"]
    assert "shrink" in line and "layers 2" in line and "seed" not in line


def test_biobert_as_published_on_the_hub(shell, biobert_v11):
    facts = facts_of(shell, "dmis-lab/biobert-v1.1")
    assert facts["family"] == "bert" and facts["architecture"] is None
    assert facts["tokenizer"] == {"kind": "WordPiece", "pieces": len(pico.wordpieces(True)), "cased": True}
    trunk = sum(t.numel() for t in load_file(biobert_v11 / "model.safetensors").values())
    assert facts["parameters"]["total"] == trunk + 2 * pico.HIDDEN + 2  # and the next-sentence head that it holds


def test_unsupported_family_is_shown(shell, pico_bert, tmp_path):
    path = Path(shutil.copytree(pico_bert, tmp_path / "copy"))
    edit_json(path / "config.json", model_type="deberta-v2")
    assert facts_of(shell, path)["family"] == "deberta-v2"


def test_plan_and_errors(shell, pico_bert, tmp_path):
    assert shell("inspect", pico_bert, "--dry-run").code == 0
    assert shell("inspect", tmp_path / "nowhere").code == 1
    (tmp_path / "empty").mkdir()
    said = shell("inspect empty")
    assert said.code == 1 and "config.json" in said.err and said.out == ""
