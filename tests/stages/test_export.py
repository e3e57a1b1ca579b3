"""Export: one file with dynamic axes and the outputs of stock transformers, or nothing."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from biosqueeze.backends import onnx_export as _export
from biosqueeze.backends.onnxruntime import OnnxPredictor
from biosqueeze.checkpoint import open_checkpoint
from tests import pico
from tests.graphs import stock_outputs
from tests.layouts import edit_json


def by_onnx(path, batch):
    session = ort.InferenceSession(path / "onnx" / "model.onnx", providers=["CPUExecutionProvider"])
    feed = {name: tensor.numpy() for name, tensor in batch.items()}
    names = [item.name for item in session.get_inputs()]
    if "token_type_ids" in names:
        feed["token_type_ids"] = np.zeros_like(feed["input_ids"])
    assert set(feed) == set(names)
    return session.run(None, feed)[0]


@pytest.mark.parametrize("shape", [(3, 17), (1, 1), (2, 100)])
@pytest.mark.parametrize(("family", "head"), pico.GRAPHS)
def test_graph_equals_stock_transformers(family, head, shape, exported) -> None:
    path = exported(family, head)
    batch = pico.padded_batch(transformers.AutoModel.from_pretrained(path), *shape)
    expected, actual, real = stock_outputs(path, batch), by_onnx(path, batch), batch["attention_mask"].numpy() == 1
    if expected.shape[:2] == real.shape:
        expected, actual = expected[real], actual[real]
    np.testing.assert_allclose(actual, expected, atol=2e-5)


@pytest.mark.parametrize(("family", "head"), pico.GRAPHS)
def test_names_of_outputs_and_axes(family, head, exported) -> None:
    graph = onnx.load(exported(family, head) / "onnx" / "model.onnx").graph
    assert [value.name for value in graph.output] == ["last_hidden_state" if head == "base" else "logits"]
    values = (*graph.input, *graph.output)
    *inputs, output = ([dim.dim_param for dim in value.type.tensor_type.shape.dim] for value in values)
    assert all(axes == ["batch", "length"] for axes in inputs)
    assert [name for name in output if name] == (
        ["batch"] if head == "sequence-classification" else ["batch", "length"]
    )


def test_padding_changes_nothing(exported) -> None:
    predictor = OnnxPredictor(exported("bert", "token-classification") / "onnx" / "model.onnx")
    ids = np.arange(5, 12)[None]
    alone = predictor.predict({"input_ids": ids, "attention_mask": np.ones_like(ids)})
    padded = np.pad(ids, ((0, 0), (0, 9)))
    among = predictor.predict({"input_ids": padded, "attention_mask": (padded > 0).astype(np.int64)})
    np.testing.assert_allclose(among[:, :7], alone, atol=2e-5)


def test_checkpoint_is_complete_with_its_manifest(exported) -> None:
    path = exported("bert", "token-classification")
    manifest = json.loads((path / "biosqueeze.json").read_text())
    assert manifest["stage"] == "export"
    assert 0 < manifest["metrics"]["export"]["max_difference"] < 1e-4
    assert manifest["metrics"]["export"]["tokens"] > 100
    assert [file.name for file in (path / "onnx").iterdir()] == ["model.onnx"]
    # The exporter would write stack traces with local paths into the graph.
    assert b"site-packages" not in (path / "onnx" / "model.onnx").read_bytes()
    assert b"/biosqueeze/" not in (path / "onnx" / "model.onnx").read_bytes()
    transformers.AutoModelForTokenClassification.from_pretrained(path)


@pytest.mark.slow
def test_old_layout_in_a_pipe_is_saved_in_the_current_one(shell, shallow, tmp_path) -> None:
    source = Path(shutil.copytree(shallow("bert", "token-classification"), tmp_path / "old"))
    torch.save(load_file(source / "model.safetensors"), source / "pytorch_model.bin")
    (source / "model.safetensors").unlink()
    piped = shell("export - --out", tmp_path / "made", stdin=f"{source}\n")
    assert (piped.code, piped.path) == (0, str(tmp_path / "made")), piped.err
    assert "largest difference" in piped.err
    assert open_checkpoint(piped.path).weights[0].name == "model.safetensors"


def test_derived_name(shell, pico_ner) -> None:
    planned = shell("export", pico_ner, "--dry-run")
    assert str(pico_ner) + "-onnx" in planned.err


def test_external_data_of_a_former_graph_are_left_out(shell, exported, copy_of) -> None:
    source = copy_of(exported("bert", "token-classification"))
    graph = source / "onnx" / "model.onnx"
    onnx.save(onnx.load(graph), graph, save_as_external_data=True, location="model.onnx_data")
    assert (source / "onnx" / "model.onnx_data").is_file()
    made = shell("export", source, "--out", "made")
    assert made.code == 0, made.err
    assert [path.name for path in Path("made/onnx").iterdir()] == ["model.onnx"]


def test_difference_over_tolerance_leaves_nothing(shell, exported, tmp_path, monkeypatch) -> None:
    right = exported("bert", "token-classification")
    changed = Path(shutil.copytree(right, tmp_path / "changed"))
    weights = load_file(changed / "model.safetensors")
    weights["classifier.bias"] += torch.tensor([0.0, 0.01, 0.0])
    save_file(weights, changed / "model.safetensors", metadata={"format": "pt"})
    # A graph that is not quite the model's: the one from before its weights were changed.
    graph = right / "onnx" / "model.onnx"
    monkeypatch.setattr(_export, "write_onnx", lambda _model, path, **_options: shutil.copyfile(graph, path))
    result = shell("export", changed, "--out", tmp_path / "made")
    assert result.code == 1
    assert "differs from PyTorch by 0.01, over the tolerance of 0.001" in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["changed"]


def test_large_outputs_have_a_relative_tolerance(tmp_path, shell) -> None:
    """As a MobileBERT has them, whose norms do not normalize."""
    path = pico.save("bert", tmp_path / "encoder", head="base")
    weights = load_file(path / "model.safetensors")
    last = max(name for name in weights if name.endswith("output.LayerNorm.weight") and "attention" not in name)
    weights[last] *= 1e5
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    result = shell("export", path, "--out", "made")
    assert result.code == 0, result.err
    assert open_checkpoint(result.path).manifest.metrics["export"]["max_difference"] > 1e-3


def test_an_export_names_the_head_of_its_weights(tmp_path, shell) -> None:
    path = pico.save("bert", tmp_path / "encoder", head="base")
    edit_json(path / "config.json", architectures=["BertForMaskedLM"])
    result = shell("quantize", path, "--out", "int8")
    assert result.code == 0, result.err
    assert json.loads(Path("int8/config.json").read_text())["architectures"] == ["BertModel"]


@pytest.mark.parametrize(("words", "advice"), [(("--opset", 23), "leave --opset out"), ((), "give another --opset")])
def test_a_graph_that_cannot_be_computed(words, advice, shell, pico_ner, monkeypatch) -> None:
    def write(_model, path, **_options):
        path.parent.mkdir()
        path.write_bytes(b"no graph")

    monkeypatch.setattr(_export, "write_onnx", write)
    result = shell("export", pico_ner, *words, "--out", "made")
    assert result.code == 1
    assert f"graph that torch.onnx writes of {pico_ner} with opset {words[-1] if words else 20} (" in result.err
    assert result.err.strip().endswith(f"nothing was written; {advice}")


def test_tolerance_must_be_positive(shell, pico_ner) -> None:
    result = shell("export", pico_ner, "--tolerance", "0")
    assert result.code == 2


@pytest.mark.slow
@pytest.mark.parametrize("opset", [18, 23])
def test_other_opsets(shell, shallow, opset) -> None:
    exported = shell("export", shallow("bert", "token-classification"), "--opset", opset, "--out", "out")
    assert exported.code == 0, exported.err
    assert onnx.load("out/onnx/model.onnx").opset_import[0].version == opset
    assert (
        json.loads(open_checkpoint("out").path.joinpath("biosqueeze.json").read_text())["metrics"]["export"]["opset"]
        == opset
    )


def test_opset_that_the_exporter_lacks(shell, pico_ner) -> None:
    """Below 18 torch's exporter writes 18 without an error, or fails."""
    refused = shell("export", pico_ner, "--opset", 17)
    assert refused.code == 2
    assert "18" in refused.err
