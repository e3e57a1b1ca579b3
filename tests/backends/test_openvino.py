"""OpenVINO agrees with stock transformers in the requested precision; without the package the error names it."""

import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import psutil
import pytest
import transformers
from onnx import helper

from biosqueeze import backends
from biosqueeze.backends import openvino
from biosqueeze.checkpoint import Checkpoint, open_checkpoint
from biosqueeze.errors import SqueezeError, is_out_of_memory
from biosqueeze.system import memory
from tests import pico
from tests.graphs import stock_outputs
from tests.manifests import history_entry, write_manifest

# Not importorskip: importing the package here, and not as the backend does, would let its telemetry loose.
needs_openvino = pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="the extra is not installed")


@pytest.fixture(autouse=True)
def without_optional_runtimes() -> None:
    """Show what all other tests hide."""


@pytest.fixture
def quantized(exported, quantized_graph, copy_of):
    """`quantized("inc-static")` is a copy with an int8 graph of that method, and the manifest of it."""

    def make(method):
        path = copy_of(exported("bert", "token-classification"))
        shutil.copy(quantized_graph(method, "bert", "token-classification").path, path / "onnx")
        write_manifest(path, stage="quantize", history=[history_entry(stage="quantize", options={"method": method})])
        return open_checkpoint(str(path))

    return make


def differences(path, spec, shape=(3, 17)):
    """Absolute differences from stock transformers on the real tokens of a padded batch, in units of their spread."""
    batch = pico.padded_batch(transformers.AutoModel.from_pretrained(path), *shape)
    expected = stock_outputs(path, batch)
    arrays = {name: tensor.numpy() for name, tensor in batch.items()}
    actual = backends.open_predictor(open_checkpoint(str(path)), spec, threads=1).predict(arrays)
    real = arrays["attention_mask"] == 1
    assert actual.dtype == np.float32
    if expected.shape[:2] == real.shape:
        expected, actual = expected[real], actual[real]
    return np.abs(actual - expected) / max(expected.std(), 0.1)  # a single number does not spread


def hide(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)


@pytest.mark.parametrize("command", ["bench", "evaluate"])
def test_missing_package_names_the_extra(command, pico_ner, monkeypatch, shell, tmp_path) -> None:
    hide(monkeypatch)
    (tmp_path / "test.tsv").write_text("of\tO\nfibrosis\tB-Disease\n")
    data = () if command == "bench" else ("--data", tmp_path)
    result = shell(command, pico_ner, "--backend", "openvino", *data)
    assert result.code == 1
    assert 'openvino is not installed; it comes with an extra: pip install "biosqueeze[openvino]"' in result.err


@needs_openvino
def test_not_available_if_not_installed(pico_ner, copy_of, monkeypatch) -> None:
    path = copy_of(pico_ner)
    (path / "onnx").mkdir()
    for name in ("model.onnx", "model_quantized.onnx"):
        (path / "onnx" / name).touch()

    def rows(*methods):
        entries = [history_entry(stage="quantize", options={"method": method}) for method in methods]
        write_manifest(path, history=[*entries, history_entry(stage="relabel")])
        return openvino.available(open_checkpoint(str(path)))

    assert openvino.available(open_checkpoint(str(pico_ner))) == ()
    assert rows("inc-static") == ("fp32", "int8")
    assert rows() == rows("inc-static", "onnx-dynamic") == ("fp32",)
    hide(monkeypatch)
    assert rows("inc-static") == ()


@needs_openvino
@pytest.mark.parametrize(
    ("spec", "command"),
    [("openvino", "export"), ("openvino:bf16", "export"), ("openvino:int8", "quantize --method inc-static")],
)
def test_missing_graph_names_the_command(pico_ner, spec, command) -> None:
    with pytest.raises(SqueezeError, match=f"biosqueeze {command} {pico_ner}"):
        backends.open_predictor(open_checkpoint(str(pico_ner)), spec)


@needs_openvino
def test_damaged_graph_is_explained(tmp_path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"no graph")
    with pytest.raises(SqueezeError, match=r"cannot load .*model\.onnx for fp32 \(.+\); export or quantize again"):
        openvino.OpenVinoPredictor(path)


@needs_openvino
@pytest.mark.parametrize("shape", [(3, 17), (1, 1), (2, 100)])
@pytest.mark.parametrize(("family", "head"), pico.GRAPHS)
def test_float_is_stock_transformers(family, head, shape, exported) -> None:
    assert differences(exported(family, head), "openvino", shape).max() < 2e-5


@needs_openvino
def test_memory_that_runs_out_is_an_error(exported) -> None:
    """OpenVINO's `infer` returns the outputs of the call before then, and fails for smaller inputs afterwards."""
    predictor = openvino.OpenVinoPredictor(exported("bert", "token-classification") / "onnx" / "model.onnx", threads=1)
    small, large = ({"input_ids": np.full((rows, 128), 7)} for rows in (2, 20_000))
    for batch in (small, large):
        batch["attention_mask"] = np.ones_like(batch["input_ids"])
    expected = predictor.predict(small)
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (memory._data_size() + 200_000_000, limits[1]))
    try:
        with pytest.raises(RuntimeError) as failure:
            predictor.predict(large)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)
    assert is_out_of_memory(failure.value)
    assert np.array_equal(predictor.predict(small), expected)


@needs_openvino
def test_what_cannot_be_computed_is_explained(exported) -> None:
    predictor = openvino.OpenVinoPredictor(exported("bert", "token-classification") / "onnx" / "model.onnx")
    with pytest.raises(SqueezeError, match=r"OpenVINO cannot compute .*model\.onnx \(.+\); remove model\.onnx"):
        predictor.predict({"input_ids": np.zeros((1, 1, 7), dtype=np.int64), "attention_mask": np.ones((1, 7))})


@needs_openvino
def test_the_graph_of_another_model_is_refused(exported, copy_of) -> None:
    path = copy_of(exported("bert", "token-classification"))
    config = json.loads((path / "config.json").read_text())
    config["id2label"].pop("2")
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(SqueezeError, match=r"has 3 outputs, and by its config\.json it has 2 .*another model; remove"):
        backends.open_predictor(Checkpoint(path, "it"), "openvino")


@needs_openvino
def test_the_graph_of_no_encoder_is_refused(tmp_path) -> None:
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["a", 3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "model.onnx")
    with pytest.raises(SqueezeError, match="has the inputs x, those of an encoder were expected"):
        openvino.OpenVinoPredictor(tmp_path / "model.onnx")


@needs_openvino
def test_bfloat16_is_a_little_different(exported) -> None:
    try:
        actual = differences(exported("bert", "token-classification"), "openvino:bf16")
    except SqueezeError as error:
        pytest.skip(str(error))
    assert 1e-4 < actual.max() < 0.2


@pytest.mark.slow
@needs_openvino
def test_fixed_ranges_are_computed_in_int8(quantized) -> None:
    checkpoint = quantized("inc-static")
    assert openvino.available(checkpoint) == ("fp32", "int8")
    actual = differences(checkpoint.path, "openvino:int8")
    assert 0 < actual.mean() < 0.05


@needs_openvino
def test_dynamic_ranges_are_an_error(quantized) -> None:
    """OpenVINO takes the graph, and computes its products in float32: no row of int8 may show that."""
    with pytest.raises(SqueezeError, match=r"in float32.*--method inc-static"):
        backends.open_predictor(quantized("onnx-dynamic"), "openvino:int8")


def test_processor_without_bfloat16_is_an_error() -> None:
    silently = SimpleNamespace(get_property=lambda name: SimpleNamespace(get_type_name=lambda: "f32"))
    with pytest.raises(SqueezeError, match="not support bfloat16 on this processor"):
        openvino.check_precision(silently, Path("model.onnx"), "bf16")
    openvino.check_precision(silently, Path("model.onnx"), "fp32")


@needs_openvino
def test_threads_are_kept(exported) -> None:
    usable = psutil.cpu_count(logical=False)
    for threads in {1, min(2, usable)}:
        predictor = openvino.load(open_checkpoint(str(exported("bert", "token-classification"))), "fp32", threads)
        assert predictor.compiled.get_property("INFERENCE_NUM_THREADS") == threads


@needs_openvino
def test_results_are_not_overwritten_by_the_next_call(exported) -> None:
    predictor = openvino.load(open_checkpoint(str(exported("bert", "token-classification"))), "fp32", 1)
    first, second = (np.arange(start, start + 10)[None] for start in (5, 50))
    first_output = predictor.predict({"input_ids": first, "attention_mask": np.ones_like(first)})
    before = first_output.copy()
    predictor.predict({"input_ids": second, "attention_mask": np.ones_like(second)})
    np.testing.assert_array_equal(first_output, before)


@needs_openvino
def test_imported_only_to_load_and_without_telemetry(exported, tmp_path) -> None:
    """Its telemetry would leave an id in the home directory."""
    code = (
        "import sys; from biosqueeze.backends import openvino; from biosqueeze.checkpoint import open_checkpoint\n"
        "checkpoint = open_checkpoint(sys.argv[1])\n"
        "assert openvino.available(checkpoint) == ('fp32',) and openvino.files(checkpoint, 'fp32')\n"
        "assert 'openvino' not in sys.modules\n"
        "openvino.load(checkpoint, 'fp32', 1)\n"
        "assert 'openvino' in sys.modules and sys.modules['openvino_telemetry'] is None\n"
    )
    home = {key: value for key, value in os.environ.items() if key != "CI"} | {"HOME": str(tmp_path)}
    command = [sys.executable, "-c", code, str(exported("bert", "token-classification"))]
    result = subprocess.run(command, env=home, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert not list(tmp_path.iterdir())
