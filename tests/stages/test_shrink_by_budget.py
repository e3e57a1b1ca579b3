"""shrink by a budget, through the command line."""

import json
from pathlib import Path

import pytest
from transformers import AutoModel

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.models.load import load_model


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


def test_vocabulary_and_budget(shell, pico_bert):
    words = ("--vocab-keep", "demo:text", "--params", "15K", "--out", "small")
    facts = json.loads(shell("shrink", pico_bert, *words, "--json").out)
    assert facts["vocabulary_after"] < facts["vocabulary_before"]
    assert facts["parameters_after"] <= 15_000
    assert AutoModel.from_pretrained("small").config.vocab_size == facts["vocabulary_after"]


def test_only_layers_of_an_albert_are_cut(shell, pico_albert):
    facts = json.loads(shell("shrink", pico_albert, "--flops", "0.6", "--out", "small", "--json").out)
    assert facts["budget"]["layers"] < 4 and facts["budget"]["flops_share"] <= 0.6


def test_importance_of_layers_chooses_the_depth_alone(shell, pico_bert):
    words = ("--importance", "block-influence", "--calibration", "demo:text", "--calibration-tokens", "100")
    budget = json.loads(shell("shrink", pico_bert, "--flops", "0.9", *words, "--out", "small", "--json").out)["budget"]
    assert budget["layers"] < 4 and (budget["heads"], budget["ffn"]) == (4, 64)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--params", "1"],
            "out of reach: the smallest shape, 1 of 4 layers, 1 of 4 heads (hidden size 8) and 4",
        ),
        (["--params", "5G"], "write for example 15M"),
        (["--params", "5B"], "met without a cut: the model, 4 of 4 layers"),
        (["--flops", "0.001"], "give --flops 0.0"),
        (["--flops", "1.5"], "--flops must be above 0 and below 1, not 1.5"),
        (["--params", "20K", "--flops", "0.5"], "--params cannot be combined with --flops"),
        (
            ["--params", "20K", "--layers", "2"],
            "cannot be combined with --layers (a budget chooses the shape)",
        ),
        (["--params", "20K", "--student", "tiny"], "--params cannot be combined with --student"),
        (["--layers", "2", "--length", "32"], "--length needs --flops"),
        (["--flops", "0.5", "--length", "600"], "--length 600 is more than the 128 positions"),
    ],
)
@pytest.mark.parametrize("mode", [[], ["--dry-run"]])
def test_impossible_budgets(shell, pico_bert, words, message, mode):
    result = shell("shrink", pico_bert, *words, *mode, "--out", "small")
    assert result.code == 2
    assert message in result.err and len(result.err.strip().splitlines()) == 1
    assert result.out == "" and not list(Path().iterdir())


def test_parameters_of_an_albert_cannot_be_cut(shell, pico_albert):
    result = shell("shrink", pico_albert, "--params", "1K", "--out", "small")
    assert result.code == 2 and "out of reach: the smallest shape, 1 of 4 layers" in result.err
