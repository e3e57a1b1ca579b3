"""shrink by a budget, through the command line."""

import json
import re
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from biosqueeze.backends import open_predictor
from biosqueeze.budgets.shapes import Shape
from biosqueeze.budgets.timing import TimingRequest
from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.importance.store import load_scores
from biosqueeze.measuring import worker_pool
from biosqueeze.models.loading.load import load_model
from tests import pico


def weights_of(path):
    return open_checkpoint(str(path)).weights_sha256()


def test_parameters_fit_and_the_cut_is_that_of_its_sizes(shell, pico_bert):
    result = shell("shrink", pico_bert, "--params", "20K", "--out", "small", "--json")
    assert result.code == 0, result.err
    facts = json.loads(result.out)
    budget = facts["budget"]
    assert facts["parameters_after"] == budget["parameters"] <= 20_000 < facts["parameters_before"]
    assert facts["parameters_after"] == sum(p.numel() for p in load_model(open_checkpoint("small")).model.parameters())
    assert 0 < budget["importance_kept"] < 1 and budget["budget"] == "--params 20K"
    kept = {row["parameters"]: row["importance_kept"] for row in budget["front"]}
    assert list(kept.values()) == sorted(kept.values()) and list(kept) == sorted(kept)
    assert kept[budget["parameters"]] == budget["importance_kept"] and kept[facts["parameters_before"]] > 0.999
    assert AutoModel.from_pretrained("small").config.intermediate_size == budget["ffn"]
    manifest = open_checkpoint("small").manifest
    assert manifest.notes["budget"] == budget and manifest.history[-1].options["params"] == "20K"
    sizes = {"--layers": (budget["layers"], 4), "--heads": (budget["heads"], 4), "--ffn": (budget["ffn"], 64)}
    words = [word for flag, (size, own) in sizes.items() if size != own for word in (flag, size)]
    assert weights_of(shell("shrink", pico_bert, *words, "--out", "named").path) == weights_of("small")


def test_operations_by_data_with_repair(shell, pico_bert):
    words = ("--flops", "0.4", "--length", "32", "--calibration", "demo:text", "--calibration-tokens", "300")
    result = shell("shrink", pico_bert, *words, "--out", "small")
    assert result.code == 0, result.err
    assert "Pareto front" in result.err and "importance kept" in result.err and "--flops 0.4" in result.err
    notes = open_checkpoint("small").manifest.notes
    assert notes["budget"]["flops_share"] <= 0.4 and notes["repaired"] and notes["importance"] == "fisher"


def test_plan_lists_the_largest_shapes_without_weights(shell, pico_bert, tmp_path):
    (tmp_path / "bare").mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "bare" / name).write_bytes((pico_bert / name).read_bytes())
    result = shell("shrink bare --params 20K --dry-run")
    assert result.code == 0, result.err
    assert "the largest shapes that fit" in result.err and "the weights decide" in result.err
    assert "parameters after" not in result.err and "bare-p20K" in result.err and not Path("bare-p20K").exists()


def test_rows_of_shapes_have_all_their_sizes(shell, pico_bert, monkeypatch):
    monkeypatch.setattr("biosqueeze.progress._LOG_WIDTH", 60)
    result = shell("shrink", pico_bert, "--params", "20K", "--out", "small")
    assert result.code == 0, result.err
    blocks = result.err[result.err.index("Pareto front") :].split("\n\n")
    parts = [part for part in blocks if "layers" in part and "─" in part]
    sizes = [re.findall(r"^ *(\d+) +(\d+) +(\d+)\b", part, re.MULTILINE) for part in parts]
    assert len(parts) > 1 and all(rows == sizes[0] for rows in sizes)
    assert len(set(sizes[0])) == len(sizes[0]) > 10


def test_shown_rows_are_counted(shell, pico_bert, monkeypatch):
    monkeypatch.setattr("biosqueeze.budgets.search._ROWS", 3)
    words = ("shrink", pico_bert, "--dry-run")
    largest = " ".join(shell(*words, "--params", "20K").err.split())
    of_all = int(re.search(r"one of the (\d+) largest", largest)[1])
    assert of_all > 3 and f"the largest shapes that fit; 3 of {of_all} are shown" in largest
    said = shell("shrink", pico_bert, "--params", "20K", "--out", "small").err
    front, shown, of_front = re.search(r"Pareto front, (\d+) of .* (\d+) of (\d+) are shown", said).groups()
    assert front == of_front and int(shown) in (3, 4)


def test_the_only_shape_that_fits(shell, pico_bert):
    facts = json.loads(shell("shrink", pico_bert, "--params", "20K", "--out", "small", "--json").out)
    least = min(each["parameters"] for each in facts["budget"]["front"])
    said = shell("shrink", pico_bert, "--params", least, "--dry-run").err
    assert "the largest shape that fits" in said and "cut to the only shape that fits" in said


def test_vocabulary_and_budget(shell, pico_bert):
    words = ("--vocab-keep", "demo:text", "--params", "15K", "--out", "small")
    facts = json.loads(shell("shrink", pico_bert, *words, "--json").out)
    assert facts["vocabulary_after"] < facts["vocabulary_before"]
    assert facts["parameters_after"] <= 15_000
    assert AutoModel.from_pretrained("small").config.vocab_size == facts["vocabulary_after"]


def test_a_decoder_that_differs_from_the_embedding_counts(shell, pico_bert, copy_of):
    source = copy_of(pico_bert)
    tensors = load_file(source / "model.safetensors")
    decoder = torch.randn_like(tensors["bert.embeddings.word_embeddings.weight"])
    save_file(tensors | {"cls.predictions.decoder.weight": decoder}, source / "model.safetensors", {"format": "pt"})
    result = shell("shrink", source, "--params", "25K", "--json")
    assert result.code == 0, result.err
    facts = json.loads(result.out)
    assert facts["parameters_after"] <= 25_000
    whole = load_model(open_checkpoint(str(source))).model
    assert facts["parameters_before"] == sum(parameter.numel() for parameter in whole.parameters())


def test_only_layers_of_an_albert_are_cut(shell, pico_albert):
    facts = json.loads(shell("shrink", pico_albert, "--flops", "0.6", "--out", "small", "--json").out)
    assert facts["budget"]["layers"] < 4 and facts["budget"]["flops_share"] <= 0.6


def test_scores_that_chose_a_shape_are_saved(shell, pico_bert):
    words = ("--calibration", "demo:text", "--calibration-tokens", "300")
    facts = json.loads(shell("shrink", pico_bert, "--flops", "0.8", *words, "--out", "small", "--json").out)
    assert facts["budget"]["layers"] < 4 and (facts["budget"]["heads"], facts["budget"]["ffn"]) == (4, 64)
    saved = load_scores(open_checkpoint("small"))
    assert saved.layers == (0, 1, 2, 3) and saved.scores.neurons.shape == (4, 64)
    assert saved.importance == "fisher" and saved.layers_by == "loss-after-repair"


@pytest.mark.parametrize(("words", "is_tried"), [([], True), (["--importance", "wanda"], False)])
def test_a_budget_says_of_which_layers_it_counts(shell, pico_bert, words, is_tried):
    data = ("--calibration", "demo:text", "--calibration-tokens", "300")
    result = shell("shrink", pico_bert, "--flops", "0.8", *data, *words, "--out", "small")
    assert result.code == 0, result.err
    assert ("of the importance with the 3 most important layers; which are kept, the loss" in result.err) is is_tried
    assert load_scores(open_checkpoint("small")).layers_by == ("loss-after-repair" if is_tried else "wanda")


def test_importance_of_layers_chooses_the_depth_alone(shell, pico_bert):
    words = ("--importance", "block-influence", "--calibration", "demo:text", "--calibration-tokens", "100")
    budget = json.loads(shell("shrink", pico_bert, "--flops", "0.9", *words, "--out", "small", "--json").out)["budget"]
    assert budget["layers"] < 4 and (budget["heads"], budget["ffn"]) == (4, 64)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--params", "1"],
            "out of reach: the smallest shape has 1 of 4 layers, 1 of 4 heads (hidden size 8) and 4",
        ),
        (["--params", "5G"], "write for example 15M"),
        (["--params", "5B"], "met without a cut: the model has 4 of 4 layers"),
        (["--flops", "0.001"], "give --flops 0.0"),
        (["--flops", "1.5"], "--flops must be above 0 and below 1, not 1.5"),
        (["--params", "20K", "--flops", "0.5"], "--params cannot be combined with --flops"),
        (
            ["--params", "20K", "--layers", "2"],
            "cannot be combined with --layers (a budget chooses the shape)",
        ),
        (["--speedup", "2", "--steps-of", "3"], "--steps-of cannot be combined with --speedup"),
        (["--params", "20K", "--student", "tiny"], "--params cannot be combined with --student"),
        (["--layers", "2", "--length", "32"], "--length needs --flops"),
        (["--params", "20K", "--batch", "2"], "--batch needs --speedup or --family"),
        (["--speedup", "1"], "--speedup must be above 1, not 1"),
        (["--speedup", "2", "--family", "2,4"], "--speedup cannot be combined with --family (a cut has one budget)"),
        (["--family", "0.5,2"], "--family 0.5,2: 0.5 is not above 1"),
        (["--family", "fast"], "write for example 2,4,8"),
        (["--speedup", "2", "--backend", "tensorrt"], "tensorrt"),
        (["--speedup", "2", "--backend", "openvino:int8"], "give onnxruntime:int8, or openvino"),
        (["--flops", "0.5", "--length", "600"], "--length 600 is more than the 128 positions"),
    ],
)
@pytest.mark.parametrize("mode", [[], ["--dry-run"]])
def test_impossible_budgets(shell, pico_bert, words, message, mode):
    result = shell("shrink", pico_bert, *words, *mode, "--out", "small")
    assert result.code == 2
    assert message in result.err and len(result.err.strip().splitlines()) == 1
    assert result.out == "" and not list(Path().iterdir())


@pytest.mark.parametrize(
    "words",
    ["--params 15K --importance fihser", "--speedup 2 --backend openvino:int8", "--flops 0.5 --length 999"],
)
def test_options_are_checked_before_the_text_is_read(shell, pico_bert, words):
    with mock.patch("biosqueeze.vocabularies.change.CountedTexts.of", side_effect=AssertionError):
        said = shell("shrink", pico_bert, "--vocab-keep", "demo:text", *words.split())
    assert said.code == 2, said.err


@pytest.mark.parametrize(("budget", "more"), [("--flops 0.5", ""), ("--params 9K", "; a smaller vocabulary has fewer")])
def test_a_model_of_one_shape_has_no_budget_to_name(budget, more, shell, shallow):
    words = ("--importance", "block-influence", "--calibration", "demo:text")
    result = shell(f"shrink {shallow('bert', 'token-classification')} {budget} --dry-run", *words)
    assert result.code == 2
    assert f"100.0% of the operations, and no smaller shape{more}" in result.err and "give -" not in result.err


def test_parameters_of_an_albert_cannot_be_cut(shell, pico_albert):
    result = shell("shrink", pico_albert, "--params", "1K", "--out", "small")
    assert result.code == 2 and "out of reach: the smallest shape has 1 of 4 layers" in result.err
    assert "fewer layers have as many parameters" in result.err and "give --params" not in result.err


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Measuring processes whose times follow from the sizes of the model; the list of what was measured."""
    monkeypatch.setenv("BIOSQUEEZE_CACHE", str(tmp_path / "cache"))
    seen = []

    class FakeProcess:
        def request(self, request):
            if "spec" in request:
                self.config = json.loads((Path(request["path"]) / "config.json").read_text())
                seen.append((request["spec"], request["threads"], *request["shapes"]))
                return {"load_seconds": 0.1}
            if "done" in request:
                return {"peak_rss_mb": 1.0}
            return {"milliseconds": [self.time_of(**self.config)] * 3, "seconds": 0.2, "waited_seconds": 0.0}

        def time_of(self, num_hidden_layers, hidden_size, intermediate_size, vocab_size, **others):
            layer = hidden_size**2 / 1000 + hidden_size * intermediate_size / 1000
            return 0.1 + hidden_size * vocab_size / 1e6 + num_hidden_layers * layer

    @contextmanager
    def fake(labels, count):
        yield [FakeProcess() for _ in labels]

    monkeypatch.setattr(worker_pool, "measuring_processes", fake)
    return seen


TIMED = ("--backend", "torch", "--batch", "2", "--length", "16", "--threads", "1")


def test_speedup_by_times_that_are_measured_once(shell, pico_bert, measured):
    planned = shell("shrink", pico_bert, "--speedup", "3", *TIMED, "--dry-run")
    assert planned.code == 0 and "measure 7 small models on torch at 2 x 16" in planned.err
    assert "the times decide" in planned.err and not measured
    result = shell("shrink", pico_bert, "--speedup", "3", *TIMED, "--out", "small")
    assert result.code == 0, result.err
    assert measured == [("torch", 1, (2, 16))] * 7
    assert "ms predicted" in result.err and "none of fewer milliseconds keeps as much" in result.err
    budget = open_checkpoint("small").manifest.notes["budget"]
    assert budget["speed_up"] >= 3
    hidden, ffn = 8 * budget["heads"], budget["ffn"]
    own = 0.1 + 4 * 32 * (32 + 64) / 1000
    assert budget["milliseconds"] == pytest.approx(0.1 + budget["layers"] * hidden * (hidden + ffn) / 1000, rel=0.15)
    assert budget["milliseconds"] * budget["speed_up"] == pytest.approx(own, rel=0.02)
    again = shell("shrink", pico_bert, "--speedup", "2", *TIMED, "--dry-run")
    assert "the largest shapes that fit" in again.err and "ms predicted" in again.err
    beyond = shell("shrink", pico_bert, "--speedup", "1000", *TIMED, "--out", "tiny")
    assert beyond.code == 2 and "out of reach: the smallest shape has 1 of 4 layers" in beyond.err
    assert "give --speedup " in beyond.err and "measured before" in beyond.err and not Path("tiny").exists()
    assert len(measured) == 7


def test_weights_are_checked_before_models_are_measured(shell, pico_bert, measured):
    shutil.copytree(pico_bert, "broken")
    weights = load_file("broken/model.safetensors")
    weights["bert.encoder.layer.2.output.dense.weight"][0, 0] = float("nan")
    save_file(weights, "broken/model.safetensors", metadata={"format": "pt"})
    result = shell("shrink", "broken", "--speedup", "2", *TIMED, "--out", "small")
    assert result.code == 1 and "holds NaN or an infinite number" in result.err
    assert not measured and sorted(path.name for path in Path().iterdir()) == ["broken"]


def test_family_is_written_whole(shell, pico_bert, measured):
    words = ("--family", "4,2", *TIMED, "--out", "family")
    result = shell("shrink", pico_bert, *words, "--json")
    assert result.code == 0, result.err
    facts = json.loads(result.out)
    assert list(facts["family"]) == ["2x", "4x"] and facts["path"] == "family"
    assert sorted(path.name for path in Path("family").iterdir()) == ["2x", "4x", "biosqueeze.json"]
    for name, member in facts["family"].items():
        path = f"family/{name}"
        AutoModel.from_pretrained(path)
        manifest = open_checkpoint(path).manifest
        assert manifest.notes["budget"] == member["budget"] and manifest.parent.name == str(pico_bert)
        assert f"--family {name[:-1]}" == member["budget"]["budget"] and member["budget"]["speed_up"] >= int(name[:-1])
    alone = shell("shrink", pico_bert, "--speedup", "4", *TIMED, "--out", "alone")
    assert weights_of(alone.path) == weights_of("family/4x")
    assert shell("shrink", pico_bert, *words).code == 1
    assert shell("shrink", pico_bert, *words, "--force", "--dry-run").code == 0  # it may be replaced


def test_family_out_of_reach_writes_nothing(shell, pico_bert, measured):
    result = shell("shrink", pico_bert, "--family", "2,1000", *TIMED, "--out", "family")
    assert result.code == 2 and "--family 1000 is out of reach" in result.err
    assert [path.name for path in Path().iterdir() if path.name.startswith("family")] == []


def test_a_runtime_that_is_not_installed(shell, pico_bert, monkeypatch):
    monkeypatch.setattr("biosqueeze.backends.openvino._is_installed", lambda: False)
    monkeypatch.setitem(sys.modules, "openvino", None)
    result = shell("shrink", pico_bert, "--speedup", "2", "--backend", "openvino", "--out", "small")
    assert (
        result.code == 1 and 'openvino is not installed; it comes with an extra: pip install "biosqueeze' in result.err
    )


def request_of(config, architecture):
    return TimingRequest(
        config=config,
        original=config,
        architecture=architecture,
        shapes=(Shape(1, 1, 8),),
        spec="onnxruntime:int8",
        batch=1,
        length=8,
        threads=1,
    )


def test_measured_models_are_int8_graphs(tmp_path, exported, monkeypatch):
    graph = exported("bert", "token-classification") / "onnx" / "model.onnx"  # an export takes seconds
    models = []

    def copy(model, path):
        models.append(model)
        path.parent.mkdir(parents=True)
        shutil.copy(graph, path)

    monkeypatch.setattr("biosqueeze.backends.onnx_export.write_onnx", copy)
    request = request_of(pico.config_of("bert", 50), pico.class_of("bert", "token-classification"))
    (config,) = request._configs
    written = request._write(config, tmp_path / "one")
    assert models[0].config.hidden_size == 8 and models[0].config._attn_implementation == "eager"
    assert written.checkpoint.config["intermediate_size"] == 8
    ids = np.full((1, 8), 5)
    batch = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    logits = open_predictor(written.checkpoint, "onnxruntime:int8").predict(batch)
    assert logits.shape == (1, 8, 3) and np.isfinite(logits).all()


def test_vocabulary_counts_only_for_a_head_over_it():
    config = pico.config_of("modernbert", 60_000)
    config.pad_token_id = 50_283
    for head, rows in (("token-classification", 50_284), ("mlm", 60_000)):
        (measured,) = request_of(config, pico.class_of("modernbert", head))._configs
        assert measured.vocab_size == rows
