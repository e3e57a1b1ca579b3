"""NaN or infinite logits are an error that names the tensor, never a prediction that finds nothing."""

import json

import numpy as np
import onnx
import pytest
from safetensors.numpy import load_file, save_file

from biosqueeze.backends.finite import check_decoding_parameters, check_finite
from biosqueeze.backends.onnx_export import check_graph
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.stages import predict
from tests.layouts import opened

LAYER = "bert.encoder.layer.0.output.dense.weight"


def damaged(path, value=np.nan, name=LAYER):
    """Write one number into a tensor of the checkpoint."""
    tensors = load_file(path / "model.safetensors")
    tensors[name].flat[3] = value
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    return path


@pytest.fixture
def broken(shallow, copy_of):
    return damaged(copy_of(shallow("bert", "token-classification")))


@pytest.fixture
def records(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps({"id": n, "text": "Hepti in fibneu " * n}) + "\n" for n in range(4)))
    return path


@pytest.mark.parametrize(("value", "kind"), [(np.nan, "NaN"), (np.inf, "an infinite number")])
def test_predict_names_the_tensor(value, kind, shallow, copy_of, records, shell):
    path = damaged(copy_of(shallow("bert", "token-classification")), value)
    result = shell("predict", path, records, "--out", "x.jsonl")
    assert (result.code, result.out) == (1, "")
    assert f"because {LAYER} in {path / 'model.safetensors'} holds {kind}; the file is damaged" in result.err
    assert "Traceback" not in result.err


def test_evaluate_names_the_tensor(broken, shell, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "test.tsv").write_text("Hepti\tB-Disease\nin\tO\n\nfibneu\tB-Disease\n")
    result = shell("evaluate", broken, "--data", "data")
    assert result.code == 1 and LAYER in result.err
    assert not (broken / "results").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("forked_processes")
def test_export_and_bench_name_the_tensor(broken, shell):
    result = shell("export", broken, "--out", "x")
    assert result.code == 1 and f"because {LAYER} in {broken / 'model.safetensors'} holds NaN" in result.err
    result = shell("bench", broken, "--rounds", "1", "--batch-size", "1", "--length", "8")
    assert result.code == 1 and LAYER in result.err


def test_graph_with_nan_is_named_by_its_initializer(exported, copy_of, records):
    path = copy_of(exported("bert", "token-classification"))
    graph = onnx.load(path / "onnx/model.onnx")
    tensor = next(t for t in graph.graph.initializer if t.name.endswith("LayerNorm.weight"))
    array = onnx.numpy_helper.to_array(tensor).copy()
    array[0] = np.nan
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    onnx.save(graph, path / "onnx/model.onnx")
    options = predict.Options(checkpoint=str(path), input=str(records), backend="onnxruntime")
    with pytest.raises(SqueezeError, match=rf"{tensor.name} in .*model\.onnx holds NaN"):
        list(predict.run(options).lines)


def test_overflow_of_finite_weights(pico_ner):
    with pytest.raises(SqueezeError, match="although all its weights are finite"):
        check_finite([np.zeros((2, 3)), np.array([[1.0, np.inf]])], opened(pico_ner), "torch")
    check_finite([np.zeros((2, 3))], opened(pico_ner), "torch")


@pytest.mark.parametrize(("backend", "advised"), [("torch", False), ("torch:bf16", True)])
def test_no_backend_is_advised_in_place_of_itself(backend, advised, pico_ner):
    with pytest.raises(SqueezeError, match="train again with a lower --lr") as error:
        check_finite([np.array([[np.nan]])], opened(pico_ner), backend)
    assert ("try another --backend, such as torch" in str(error.value)) is advised


def test_an_overflow_is_no_difference_of_the_graph(exported, copy_of):
    path = copy_of(exported("bert", "token-classification"))
    tensors = load_file(path / "model.safetensors")
    tensors["classifier.weight"][:] = 3e38
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    with pytest.raises(SqueezeError, match="on torch are NaN or infinite, although all its weights are finite"):
        check_graph(opened(path), 1e-3, "")


def test_padding_may_be_anything(monkeypatch, shallow, records):
    """A backend may give NaN on padding, which no prediction is read from."""
    from biosqueeze.backends.torch import TorchPredictor

    genuine = TorchPredictor.predict

    def padded_with_nan(self, batch):
        return np.where(batch["attention_mask"][..., None] == 1, genuine(self, batch), np.float32(np.nan))

    options = predict.Options(checkpoint=str(shallow("bert", "token-classification")), input=str(records))
    expected = list(predict.run(options).lines)
    monkeypatch.setattr(TorchPredictor, "predict", padded_with_nan)
    assert list(predict.run(options).lines) == expected


def test_crf_may_forbid_but_not_be_nan(tmp_path):
    check_decoding_parameters({"start": np.array([0.0, -np.inf])}, Checkpoint(tmp_path, "x"))
    for value in (np.nan, np.inf):
        with pytest.raises(SqueezeError, match=r"start in .*head\.safetensors holds NaN or infinity"):
            check_decoding_parameters({"start": np.array([value])}, Checkpoint(tmp_path, "x"))
