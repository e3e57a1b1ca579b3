"""Quantize: the int8 graph is written if it agrees with PyTorch on text, and not otherwise."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from biosqueeze import registry
from biosqueeze.backends import default_spec
from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.models import device
from biosqueeze.quantizers.comparison import note_comparison
from biosqueeze.stages import quantize
from tests import pico
from tests.graphs import with_other_weights
from tests.layouts import edit_json
from tests.manifests import history_entry, write_manifest


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(pico.sentences(200, seed=3)) + "\n")
    return path


@pytest.fixture
def fake(monkeypatch):
    """Replace the quantizer by a function of the job; static, so that it gets calibration batches."""

    def install(function):
        module = SimpleNamespace(NEEDS_CALIBRATION=True, USES=frozenset(), quantize=function)
        monkeypatch.setattr(
            registry, "load", lambda package, name: module if package == "quantizers" else load(package, name)
        )

    load = registry.load
    return install


@pytest.mark.slow
@pytest.mark.parametrize("family", pico.FAMILIES)
def test_every_family_in_a_pipe(family, exported, shell, corpus, tmp_path) -> None:
    source = exported(family, pico.ROWS[family].exported)
    result = shell("quantize - --calibration", corpus, "--out", tmp_path / "int8", stdin=f"{source}\n")
    assert (result.code, result.path) == (0, str(tmp_path / "int8")), result.err
    quantized = open_checkpoint(result.path)
    assert default_spec(quantized) == "onnxruntime:int8"
    actual = quantized.manifest.metrics["quantize"]
    assert 0.9 < actual["agreement"] <= 1
    assert 0 < actual["mean_difference"] < actual["max_difference"] < 1
    assert actual["size_ratio"] < 1
    assert quantized.manifest.notes["quantize"]["method"] == "onnx-dynamic"
    assert [entry.stage for entry in quantized.history] == ["export", "quantize"]


def test_exports_first_where_there_is_no_graph(shallow, shell, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(device._selected, "device", None)
    monkeypatch.setattr("torch.accelerator.is_available", lambda: pytest.fail("the CPU is enough"))
    result = shell("quantize", shallow("bert", "base"), "--out", tmp_path / "int8", "--no-embeddings")
    assert result.code == 0, result.err
    quantized = open_checkpoint(result.path)
    assert sorted(path.name for path in (quantized.path / "onnx").iterdir()) == ["model.onnx", "model_quantized.onnx"]
    assert quantized.manifest.metrics["quantize"]["cosine"] > 0.99
    assert quantized.manifest.notes["quantize"]["int8_embedding_tables"] == 0


def test_a_directory_in_place_of_the_graph(shallow, shell, copy_of, tmp_path) -> None:
    source = copy_of(shallow("bert", "token-classification"))
    (source / "onnx" / "model.onnx").mkdir(parents=True)
    result = shell("quantize", source, "--out", tmp_path / "int8")
    assert result.code == 1
    assert "has no onnx/model.onnx" in result.err.splitlines()[-1]


@pytest.mark.slow
def test_static_with_a_corpus_and_without(exported, shell, corpus, tmp_path) -> None:
    source = exported("bert", "token-classification")
    words = ("quantize", source, "--method", "inc-static", "--calibration-samples", 24)
    result = shell(*words, "--out", tmp_path / "int8", "--calibration", corpus)
    assert result.code == 0, result.err
    quantized = open_checkpoint(result.path)
    assert quantized.manifest.metrics["quantize"]["agreement"] > 0.9
    assert quantized.manifest.notes["quantize"]["calibration_sequences"] == 24


@pytest.mark.parametrize(
    ("task", "agreement", "cosine", "measure", "warned"),
    [
        ("token-classification", 0.979, 0.99, "share of equal predictions 0.9790", True),
        ("token-classification", 0.98, 0.9, "share of equal predictions 0.9800", False),
        ("base", 0.9, 0.99, "cosine 0.9900", False),
        ("base", 0.99, 0.9, "cosine 0.9000", True),
    ],
)
@pytest.mark.parametrize("is_named", [True, False])
def test_warning_under_98_percent(is_named, task, agreement, cosine, measure, warned, shallow, copy_of, capfd) -> None:
    path = copy_of(shallow("bert", task))
    if not is_named:  # as old checkpoints
        edit_json(path / "config.json", drop=("architectures",))
    names = ("megabytes", "size_ratio", "tokens", "max_difference", "mean_difference")
    metrics = {**dict.fromkeys(names, 1), "cosine": cosine, "agreement": agreement}
    note_comparison(open_checkpoint(str(path)), metrics, "another --method")
    words = " ".join(capfd.readouterr().err.split())
    assert measure in words
    assert ("only (0.98 is usual)" in words) is warned


@pytest.mark.parametrize("method", registry.names("quantizers"))
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_only_float32_graphs_are_quantized(method, dry, exported, quantized_graph, copy_of, shell) -> None:
    path = copy_of(exported("bert", "token-classification"))
    shutil.copy(quantized_graph("onnx-dynamic", "bert", "token-classification").path, path / "onnx" / "model.onnx")
    result = shell("quantize", path, "--method", method, "--out", "int8", *dry)
    assert (result.code, result.out) == (1, "")
    assert "model.onnx holds int8 weights, and float32 ones are quantized; remove it" in result.err
    assert not Path("int8").exists()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["quantize", "quantize --dry-run", "predict --backend onnxruntime --text sepsis"])
def test_the_graph_of_another_model_is_refused(command, exported, copy_of, shell) -> None:
    path = copy_of(exported("bert", "token-classification"))
    shutil.copy(exported("bert", "base") / "onnx" / "model.onnx", path / "onnx")
    first, *words = command.split()
    result = shell(first, path, *words)
    assert (result.code, result.out) == (1, "")
    assert "(token-classification): it is the graph of another model; remove model.onnx, and `biosqueeze" in result.err


def _with_changed_bias(path):
    """Change the weights of a checkpoint, but not its graph."""
    weights = load_file(path / "model.safetensors")
    weights["classifier.bias"][1] += 0.01
    save_file(weights, path / "model.safetensors", {"format": "pt"})
    return path


def test_the_graph_of_other_weights_is_refused(exported, copy_of, shell) -> None:
    path = _with_changed_bias(copy_of(exported("bert", "token-classification")))
    result = shell("quantize", path, "--out", "int8")
    assert (result.code, result.out) == (1, "")
    graph = path / "onnx" / "model.onnx"
    assert "differs from PyTorch by 0.01, over the tolerance of 0.001" in result.err
    assert f"if it is that of other weights, remove {graph}, and it is exported again" in result.err
    assert not Path("int8").exists()
    graph.unlink()
    assert shell("quantize", path, "--out", "int8").code == 0


def test_a_graph_may_differ_as_its_export_allowed(exported, copy_of, shell) -> None:
    path = _with_changed_bias(copy_of(exported("bert", "token-classification")))
    write_manifest(path, stage="export", history=[history_entry(stage="export", options={"tolerance": 0.02})])
    result = shell("quantize", path, "--out", "int8")
    assert result.code == 0, result.err


def test_broken_int8_graph_is_not_written(exported, shell, corpus, fake, tmp_path) -> None:
    def other_weights(job):
        random = np.random.default_rng(1)
        with_other_weights(job.source, job.target, lambda _name, array: random.permuted(array))
        return {}

    fake(other_weights)
    source = exported("bert", "token-classification")
    result = shell("quantize", source, "--out", tmp_path / "int8", "--calibration", corpus)
    assert result.code == 1
    assert "under the tolerance of 0.8; nothing was written" in result.err
    assert not list(tmp_path.glob("int8*"))


def test_graph_with_nan_outputs_is_not_written(exported, shell, corpus, fake, tmp_path) -> None:
    def broken_embedding(job):
        with_other_weights(job.source, job.target, damage)
        return {}

    def damage(_name, array):
        if len(array) > 200:  # the table of pieces
            array[20:] = np.nan
        return array

    fake(broken_embedding)
    result = shell(
        "quantize", exported("bert", "token-classification"), "--out", tmp_path / "int8", "--calibration", corpus,
        "--tolerance", "0",
    )  # fmt: skip
    assert (result.code, "not a number; nothing was written" in result.err) == (1, True), result.err
    assert not list(tmp_path.glob("int8*"))


def test_only_static_methods_warn_of_the_sample(exported, shell, fake, tmp_path) -> None:
    source = exported("bert", "token-classification")
    dynamic = shell("quantize", source, "--out", tmp_path / "int8")
    assert (dynamic.code, "only a sample" in dynamic.err) == (0, False), dynamic.err

    def fails(_job):
        raise SqueezeError("no int8 today")

    fake(fails)
    static = shell("quantize", source, "--out", tmp_path / "static")
    assert (static.code, "only a sample" in static.err) == (1, True), static.err


@pytest.fixture
def scorer(exported, copy_of) -> Path:
    path = copy_of(exported("bert", "sequence-classification"))
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "problem_type": "regression"}))
    return path


def test_scores_are_compared_by_their_correlation(scorer, shell) -> None:
    result = shell("quantize", scorer, "--out", "int8")
    assert (result.code, ", correlation of scores 1.0000" in " ".join(result.err.split())) == (0, True), result.err
    refused = shell("quantize", scorer, "--out", "refused", "--tolerance", 1)
    assert (refused.code, "its correlation of scores with PyTorch is" in refused.err) == (1, True), refused.err


def test_scores_of_one_line_are_not_compared(scorer, shell, tmp_path) -> None:
    (tmp_path / "one.txt").write_text("one line.\n")
    result = shell("quantize", scorer, "--calibration", tmp_path / "one.txt", "--out", "int8")
    assert (result.code, "--calibration has one line" in result.err) == (1, True), result.err


@pytest.mark.parametrize(("samples", "warned"), [(200, False), (201, True)])
def test_a_text_with_fewer_lines_is_told(samples, warned, exported, shell, corpus, fake, tmp_path) -> None:
    def fails(_job):
        raise SqueezeError("no int8 today")

    fake(fails)
    words = ("--method", "inc-static", "--calibration", corpus, "--calibration-samples", samples, "--out", "int8")
    result = shell("quantize", exported("bert", "token-classification"), *words)
    told = f"{corpus} has 200 lines to calibrate on, --calibration-samples is {samples}" in result.err
    assert (result.code, told) == (1, warned), result.err


def test_plan_names_every_step(shallow, exported, shell) -> None:
    fresh = shell("quantize", shallow("bert", "token-classification"), "--dry-run", "--method", "inc-static", "--json")
    plan = json.loads(fresh.out)
    assert any("export it" in step for step in plan["steps"])
    assert any("calibrate on 256 lines of demo:text" in step for step in plan["steps"])
    assert plan["out"].endswith("-int8")
    ready = shell("quantize", exported("bert", "token-classification"), "--dry-run")
    assert "export it" not in ready.err
    assert "calibrate" not in ready.err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("--tolerance", "1.5"), "at least 0 and at most 1, not 1.5"),
        (("--calibration-samples", "0"), "at least 1"),
        (("--max-length", "2"), "at least 3"),
        (("--method", "onnx-dynamc"), "onnx-dynamic"),
        (("--observer", "kl"), "--observer is not for --method onnx-dynamic"),
        (("--calibration-samples", "9"), "--calibration-samples is not for --method onnx-dynamic"),
        (("--calibration-field", "abstract"), "--calibration-field needs --calibration"),
    ],
)
def test_bad_options(shallow, shell, words, hint) -> None:
    result = shell("quantize", shallow("bert", "token-classification"), *words)
    assert result.code == 2
    assert hint in result.err


def test_empty_corpus_leaves_nothing(exported, shell, tmp_path) -> None:
    (tmp_path / "empty.txt").touch()
    source = exported("bert", "token-classification")
    result = shell("quantize", source, "--out", tmp_path / "int8", "--calibration", tmp_path / "empty.txt")
    assert result.code == 1
    assert "empty" in result.err
    assert not list(tmp_path.glob("int8*"))


@pytest.fixture(scope="module")
def slim(exported, tmp_path_factory):
    """A token classifier without float weights, and the same with them."""
    out = tmp_path_factory.mktemp("slim")
    source = str(exported("bert", "token-classification"))
    for name in ("slim", "full"):
        quantize.run(quantize.Options(checkpoint=source, out=str(out / name), slim=name == "slim"))
    return out


def test_slim_holds_what_the_int8_runtime_needs(slim, shell) -> None:
    names = {str(path.relative_to(slim / "slim")) for path in (slim / "slim").rglob("*") if path.is_file()}
    needed = {"README.md", "biosqueeze.json", "config.json", "tokenizer.json", "tokenizer_config.json"}
    assert names == needed | {"onnx/model_quantized.onnx"}
    graphs = [(slim / name / "onnx" / "model_quantized.onnx").read_bytes() for name in ("slim", "full")]
    assert graphs[0] == graphs[1]
    manifests = [open_checkpoint(str(slim / name), slim=True).manifest for name in ("slim", "full")]
    assert manifests[0].model == manifests[1].model


def test_the_card_of_slim_loads_the_int8_graph(slim) -> None:
    cards = [(slim / name / "README.md").read_text() for name in ("slim", "full")]
    assert ["from transformers import" in text for text in cards] == [False, True]
    assert all("InferenceSession" in text for text in cards)


def test_slim_is_used_as_the_full_one(slim, shell) -> None:
    (lines := slim / "lines.txt").write_text("Carcinoma of the patients.\n")
    found = [shell("predict", slim / name, lines) for name in ("slim", "full")]
    assert found[0].code == 0, found[0].err
    assert found[0].out == found[1].out
    facts = json.loads(shell("inspect", slim / "slim", "--json").out)
    assert shell("inspect", slim / "slim", "--dry-run").code == 0
    full = json.loads(shell("inspect", slim / "full", "--json").out)
    assert facts["parameters"] == full["parameters"]
    assert facts["deployed_megabytes"] == full["deployed_megabytes"] < full["megabytes"]["total"]
    bench = shell("bench", slim / "slim", "--seconds", 0, "--rounds", 1, "--batch-size", 1, "--length", 8, "--json")
    assert bench.code == 0, bench.err
    (row,) = json.loads(bench.out)["rows"]
    assert (row["backend"], row["deployed_megabytes"]) == ("onnxruntime:int8", facts["deployed_megabytes"])


def test_slim_leaves_out_the_weights_of_all_frameworks(exported, shell, tmp_path) -> None:
    source = Path(shutil.copytree(exported("bert", "token-classification"), tmp_path / "source"))
    for name in ("tf_model.h5", "flax_model.msgpack", "rust_model.ot", "onnx/model_fp16.onnx"):
        (source / name).write_bytes(b"weights")
    result = shell("quantize", source, "--slim", "--out", tmp_path / "slim")
    assert result.code == 0, result.err
    assert [path.name for path in (tmp_path / "slim" / "onnx").iterdir()] == ["model_quantized.onnx"]
    assert not [path for path in (tmp_path / "slim").iterdir() if path.suffix in (".h5", ".msgpack", ".ot")]
    *_, size, _ = result.err.splitlines()
    deployed = sum(path.stat().st_size for path in (tmp_path / "slim").rglob("*") if path.name in DEPLOYED) / 1e6
    assert f" parameters, {round(deployed, 3)} MB deployed; took" in size


def test_a_slim_checkpoint_is_uploaded(slim, shell) -> None:
    result = shell("push", slim / "slim", "me/slim", "--dry-run")
    assert result.code == 0, result.err
    assert "onnx/model_quantized.onnx" in result.err


DEPLOYED = ("config.json", "tokenizer.json", "tokenizer_config.json", "model_quantized.onnx")
NEED_FLOATS = (
    *("shrink --layers 1", "export", "quantize", "predict --backend torch", "predict --backend onnxruntime"),
    "bench --backend onnxruntime",
)


@pytest.mark.parametrize("extra", [(), ("--dry-run",)])
@pytest.mark.parametrize("command", NEED_FLOATS)
def test_commands_that_need_float_weights_say_so(command, extra, slim, shell) -> None:
    (lines := slim / "lines.txt").write_text("Carcinoma of the patients.\n")
    result = shell(command, slim / "slim", *([lines] if "predict" in command else []), *extra)
    assert result.code == 1, result.err
    assert "has no float weights" in result.err
    assert "biosqueeze quantize" in result.err
    assert len(result.err.splitlines()) == 1


def test_sizes_are_those_of_the_files(exported, shell, tmp_path) -> None:
    made = shell("quantize", exported("bert", "token-classification"), "--out", tmp_path / "int8", "--json")
    sizes = json.loads(made.out)
    files = [path for path in (tmp_path / "int8").rglob("*") if path.is_file()]
    deployed = sum(path.stat().st_size for path in files if path.name in DEPLOYED)
    total = sum(path.stat().st_size for path in files)
    assert sizes["deployed_megabytes"] == round(deployed / 1e6, 3)
    assert sizes["directory_megabytes"] == round(total / 1e6, 3)
