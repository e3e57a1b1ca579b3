"""Every way to quantize: the graph runs at any shape, nearly agrees with stock transformers, and stores int8."""

from unittest import mock

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
import transformers

from biosqueeze import registry
from biosqueeze.backends.onnx_export import PositionalModel
from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.quantizers import QuantizationJob, divisions, onnx_dynamic
from biosqueeze.stages import export
from tests import graphs, pico

INT8 = onnx.TensorProto.INT8


@pytest.fixture(scope="module")
def ner(exported):
    """A token classifier with one layer and its float graph."""
    return exported("bert", "token-classification")


@pytest.fixture(scope="module")
def float_graph(ner):
    return ner / "onnx" / "model.onnx"


@pytest.fixture(scope="module", params=registry.names("quantizers"))
def quantized(request, quantized_graph):
    """The graph of one method."""
    return quantized_graph(request.param, "bert", "token-classification")


def predict(path, batch):
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    feed = {name: tensor.numpy() for name, tensor in batch.items()}
    return session.run(None, feed | {"token_type_ids": np.zeros_like(feed["input_ids"])})[0]


def test_every_quantizer_has_the_interface() -> None:
    assert registry.names("quantizers") == ("inc-static", "onnx-dynamic")
    for name in registry.names("quantizers"):
        module = registry.load("quantizers", name)
        assert module.__doc__
        assert isinstance(module.NEEDS_CALIBRATION, bool)


@pytest.mark.parametrize("shape", [(3, 17), (1, 1), (2, 100)])
def test_nearly_agrees_with_stock_transformers(quantized, ner, shape) -> None:
    model = transformers.AutoModelForTokenClassification.from_pretrained(ner).eval()
    batch = pico.padded_batch(model, *shape)
    with torch.no_grad():
        expected = model(**batch).logits.numpy()
    real = batch["attention_mask"].numpy() == 1
    difference = np.abs(predict(quantized.path, batch)[real] - expected[real])
    # Logits spread by 0.6 or so.
    assert 0 < difference.mean() < 0.04


def test_matrices_and_tables_are_stored_as_int8(quantized) -> None:
    graph = onnx.load(quantized.path).graph
    matrices = {tensor.name: tensor for tensor in graph.initializer if len(tensor.dims) == 2}
    stored = sum(np.prod(tensor.dims) for tensor in matrices.values() if tensor.data_type == INT8)
    layers = 4 * pico.HIDDEN**2 + 2 * pico.HIDDEN * pico.FFN
    tables = (len(pico.wordpieces(cased=True)) + pico.POSITIONS) * pico.HIDDEN
    assert stored == layers + tables
    floats = {name: list(t.dims) for name, t in matrices.items() if t.data_type == onnx.TensorProto.FLOAT}
    # Token types, the classifier, and one scale per row of the tables are all that stays.
    assert all(min(dims) <= max(2, len(pico.LABELS)) for dims in floats.values()), floats


def test_file_shrinks(quantized, float_graph) -> None:
    assert quantized.path.stat().st_size < 0.55 * float_graph.stat().st_size
    assert [path.name for path in quantized.path.parent.iterdir()] == ["model_quantized.onnx"]


def test_notes_describe_the_graph(quantized) -> None:
    notes = quantized.notes
    assert notes["weights"] == "int8 per channel"
    assert notes["int8_embedding_tables"] == 2
    assert len(notes["kept_float"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_sequence_classifier_stays_float(family: str, exported, tmp_path) -> None:
    source, target = open_checkpoint(str(exported(family, "sequence-classification"))), tmp_path / "int8.onnx"
    graph = source.path / "onnx" / "model.onnx"
    job = QuantizationJob(checkpoint=source, source=graph, target=target, embeddings=False)
    notes = registry.load("quantizers", "onnx-dynamic").quantize(job)
    assert len(notes["kept_float"]) == 1
    floats = [set(t.dims) for t in onnx.load(target).graph.initializer if t.data_type == onnx.TensorProto.FLOAT]
    assert {len(pico.LABELS), pico.HIDDEN} in floats


@pytest.fixture(scope="module")
def shared_layers(tmp_path_factory):
    """ALBERT with two layers, of a size from which the exporter leaves shared matrices to be transposed at run time."""
    root = tmp_path_factory.mktemp("albert")
    with mock.patch.multiple(pico, LAYERS=2, FFN=512):
        checkpoint = pico.save("albert", root / "checkpoint", head="token-classification")
    return export.run(export.Options(checkpoint=str(checkpoint), out=str(root / "exported"))).path


@pytest.mark.slow
@pytest.mark.parametrize("method", registry.names("quantizers"))
def test_matrices_that_layers_share_are_int8(method, shared_layers, tmp_path) -> None:
    graphs.quantize(shared_layers, method, tmp_path / "int8")
    tensors = onnx.load(graphs.read(tmp_path / "int8").path).graph.initializer
    floats = [list(t.dims) for t in tensors if t.data_type == onnx.TensorProto.FLOAT and len(t.dims) == 2]
    assert all(min(dims) <= len(pico.LABELS) for dims in floats), floats


def test_static_ranges_come_from_calibration(ner, tmp_path) -> None:
    """The first range must be that of the embeddings which stock transformers computes for the calibration batch."""
    model = transformers.AutoModelForTokenClassification.from_pretrained(ner).eval()
    batch = pico.padded_batch(model)
    with torch.no_grad():
        embedded = model(**batch, output_hidden_states=True).hidden_states[0]
    target = tmp_path / "static.onnx"
    batches = [{name: tensor.numpy() for name, tensor in batch.items()}]
    job = QuantizationJob(checkpoint=open_checkpoint(str(ner)), source=target, target=target, batches=batches)
    notes = registry.load("quantizers", "inc-static").quantize(job)
    assert notes["calibration_sequences"] == len(batch["input_ids"])
    assert notes["int8_weights"] == 6
    graph = onnx.load(target).graph
    first = next(node for node in graph.node if node.op_type == "QuantizeLinear")
    scale, zero = (onnx.numpy_helper.to_array(t) for n in first.input[1:] for t in graph.initializer if t.name == n)
    low, high = float(embedded.min()), float(embedded.max())
    assert float(scale) == pytest.approx((high - low) / 255, rel=1e-4)
    assert abs(float(zero) + low / float(scale)) <= 0.51


def test_embeddings_can_stay_float(float_graph, ner, tmp_path) -> None:
    source = open_checkpoint(str(ner))
    job = QuantizationJob(checkpoint=source, source=float_graph, target=tmp_path / "int8.onnx", embeddings=False)
    assert registry.load("quantizers", "onnx-dynamic").quantize(job)["int8_embedding_tables"] == 0
    floats = [list(t.dims) for t in onnx.load(job.target).graph.initializer if t.data_type == onnx.TensorProto.FLOAT]
    assert [source.config["vocab_size"], pico.HIDDEN] in floats


@pytest.mark.filterwarnings("ignore:")
@pytest.mark.parametrize("opset", [11, 14])
def test_a_graph_that_an_older_exporter_wrote(opset, exported, tmp_path, monkeypatch) -> None:
    """Of opsets in which the axes of reductions are attributes, and a GELU is several nodes."""
    monkeypatch.setattr(divisions, "_WORTH", 1.0)
    checkpoint = open_checkpoint(str(exported("bert", "token-classification")))
    model = transformers.AutoModelForTokenClassification.from_pretrained(checkpoint.path, attn_implementation="eager")
    batch = pico.padded_batch(model.eval()) | {"token_type_ids": torch.zeros(3, 17, dtype=torch.long)}
    source, target = tmp_path / "model.onnx", tmp_path / "model_quantized.onnx"
    torch.onnx.export(
        PositionalModel(model),
        tuple(batch.values()),
        source,
        dynamo=False,
        opset_version=opset,
        input_names=list(batch),
        dynamic_axes={name: {0: "batch", 1: "length"} for name in batch},
    )
    arrays = {name: tensor.numpy() for name, tensor in batch.items()}
    job = QuantizationJob(checkpoint=checkpoint, source=source, target=target, batches=[arrays])
    notes = onnx_dynamic.quantize(job)
    assert notes["inputs_divided_by_channel"] + notes["inputs_divided_by_token"] >= 1
    expected, actual = (
        ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, arrays)[0] for path in (source, target)
    )
    real = arrays["attention_mask"] == 1
    assert 0 < np.abs(actual - expected)[real].mean() < 0.02
