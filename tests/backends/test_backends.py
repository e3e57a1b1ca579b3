"""Specs, and what each backend does with a checkpoint; the reference is stock transformers."""

import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import transformers
from onnx import helper

from biosqueeze import backends, registry
from biosqueeze.backends.onnxruntime import OnnxPredictor
from biosqueeze.backends.torch import TorchPredictor
from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.errors import SqueezeError, UsageError
from tests import pico
from tests.manifests import write_manifest


def test_every_backend_has_the_runtime_interface(pico_ner) -> None:
    checkpoint = open_checkpoint(str(pico_ner))
    assert registry.names("backends") == ("onnxruntime", "openvino", "torch")
    for name in registry.names("backends"):
        module = registry.load("backends", name)
        assert module.__doc__
        assert module.PRECISIONS[0] == "fp32"
        assert set(module.available(checkpoint)) <= set(module.PRECISIONS)


def test_specs() -> None:
    assert backends.parse_spec("torch") == ("torch", "fp32")
    assert backends.parse_spec("onnxruntime:int8") == ("onnxruntime", "int8")
    assert backends.canonical_spec("torch:fp32") == "torch"
    assert backends.canonical_spec("torch:bf16") == "torch:bf16"


@pytest.mark.parametrize(
    ("spec", "hint"),
    [("onnxruntme", "Did you mean 'onnxruntime'"), ("torch:bf", "'bf16'"), ("torch:int8", "fp32, bf16")],
)
def test_unknown_spec_names_the_nearest(spec, hint) -> None:
    with pytest.raises(UsageError, match=hint):
        backends.parse_spec(spec)


def test_available_and_default_backends(pico_ner, tmp_path) -> None:
    path = Path(shutil.copytree(pico_ner, tmp_path / "c"))
    assert backends.available_specs(open_checkpoint(str(path))) == ("torch",)
    assert backends.default_spec(open_checkpoint(str(path))) == "torch"
    (path / "onnx").mkdir()
    for file in ("model.onnx", "model_quantized.onnx"):
        (path / "onnx" / file).touch()
    write_manifest(path, stage="quantize")
    assert backends.available_specs(open_checkpoint(str(path))) == ("torch", "onnxruntime", "onnxruntime:int8")
    assert backends.default_spec(open_checkpoint(str(path))) == "onnxruntime:int8"


@pytest.mark.parametrize(("spec", "command"), [("onnxruntime", "export"), ("onnxruntime:int8", "quantize")])
def test_missing_graph_names_the_command(pico_ner, spec, command) -> None:
    with pytest.raises(SqueezeError, match=f"biosqueeze {command} {pico_ner}"):
        backends.open_predictor(open_checkpoint(str(pico_ner)), spec)


@pytest.mark.parametrize("names", [["model.onnx.data"], ["model.onnx_data", "model.onnx_data_1"]])
def test_weights_beside_a_graph_are_files_of_it(names, pico_ner, copy_of) -> None:
    path = copy_of(pico_ner)
    (path / "onnx").mkdir()
    for name in ("model.onnx", "model_quantized.onnx", "model_quantized.onnx_data", *names):
        (path / "onnx" / name).touch()
    files = backends.files_of(open_checkpoint(str(path)), "onnxruntime")
    assert [file.name for file in files] == ["model.onnx", *names]


def test_damaged_graph_is_explained(tmp_path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"no graph")
    with pytest.raises(SqueezeError, match=r"cannot load .*model\.onnx"):
        OnnxPredictor(path)


def test_a_span_head_with_two_outputs_is_read(tmp_path) -> None:
    """Other exporters write the logits of starts and of ends as two outputs, and perhaps more before them."""
    ids, mask, *outputs = (
        helper.make_tensor_value_info(name, kind, ["batch", "length"])
        for kind, names in {
            onnx.TensorProto.INT64: ("input_ids", "attention_mask"),
            onnx.TensorProto.FLOAT: ("states", "end_logits", "start_logits"),
        }.items()
        for name in names
    )
    nodes = [
        helper.make_node("Cast", [name], [output.name], to=onnx.TensorProto.FLOAT)
        for name, output in zip(("input_ids", "attention_mask", "input_ids"), outputs, strict=True)
    ]
    graph = helper.make_graph(nodes, "span", [ids, mask], outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "a.onnx")
    batch = {"input_ids": np.array([[5, 6], [7, 0]]), "attention_mask": np.array([[1, 1], [1, 0]])}
    actual = OnnxPredictor(tmp_path / "a.onnx").predict(batch)
    assert actual.tolist() == [[[5, 1], [6, 1]], [[7, 1], [0, 0]]]


@pytest.mark.parametrize(("axes", "fits"), [(["b", "l", 3], True), (["b", 3], False), (["b", "l", 2], False)])
def test_a_graph_of_another_head_is_refused(axes, fits, pico_ner, copy_of) -> None:
    path = copy_of(pico_ner)
    (path / "onnx").mkdir()
    ids = helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, ["b", "l"])
    logits = helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, axes)
    shape = helper.make_tensor("shape", onnx.TensorProto.INT64, [len(axes)], [1] * (len(axes) - 1) + [axes[-1]])
    graph = helper.make_graph(
        [helper.make_node("ConstantOfShape", ["shape"], ["logits"])], "g", [ids], [logits], [shape]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, path / "onnx" / "model.onnx")
    refused = nullcontext() if fits else pytest.raises(SqueezeError, match="it is the graph of another model; remove")
    with refused:
        backends.open_predictor(open_checkpoint(str(path)), "onnxruntime")


@pytest.mark.parametrize("family", pico.FAMILIES)
def test_torch_is_stock_transformers(family, tmp_path) -> None:
    path = pico.save(family, tmp_path / family, head="token-classification")
    stock = transformers.AutoModelForTokenClassification.from_pretrained(path).eval()
    batch = pico.padded_batch(stock)
    with torch.no_grad():
        expected = stock(**batch).logits.numpy()
    arrays = {name: tensor.numpy() for name, tensor in batch.items()}
    actual = backends.open_predictor(open_checkpoint(str(path)), "torch", threads=1).predict(arrays)
    real = arrays["attention_mask"] == 1
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual[real], expected[real], atol=1e-6)
    rough = backends.open_predictor(open_checkpoint(str(path)), "torch:bf16").predict(arrays)
    assert rough.dtype == np.float32
    difference = np.abs(rough[real] - expected[real]).max()
    assert 1e-6 < difference < 0.1 * np.abs(expected[real]).max()


def test_token_types_are_used_where_given(pico_ner) -> None:
    predictor = backends.open_predictor(open_checkpoint(str(pico_ner)), "torch")
    ids = np.arange(5, 15)[None]
    batch = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    plain, second = (predictor.predict({**batch, "token_type_ids": np.full_like(ids, kind)}) for kind in (0, 1))
    np.testing.assert_array_equal(predictor.predict(batch), plain)
    assert np.abs(second - plain).max() > 1e-3


def test_model_in_training_mode_predicts_without_dropout(pico_ner) -> None:
    model = transformers.AutoModelForTokenClassification.from_pretrained(pico_ner).train()
    predictor = TorchPredictor(model, "fp32", "cpu")
    ids = np.arange(5, 15)[None]
    batch = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    np.testing.assert_array_equal(predictor.predict(batch), predictor.predict(batch))
    assert model.training
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


def test_encoder_without_head_gives_hidden_states(tmp_path) -> None:
    path = pico.save("distilbert", tmp_path / "base", head="base")
    ids = np.arange(5, 15)[None]
    actual = backends.open_predictor(open_checkpoint(str(path)), "torch").predict(
        {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    )
    assert actual.shape == (1, 10, pico.HIDDEN)
