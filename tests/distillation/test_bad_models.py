"""Weights that are NaN are named before a training; a student that predicts nothing is reported after it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.cli.run import Shell

TENSOR = "bert.encoder.layer.1.output.dense.weight"


@pytest.fixture
def damaged(pico_ner: Path, copy_of: Callable[[Path], Path]) -> Path:
    """A tagger with a NaN in one tensor."""
    folder = copy_of(pico_ner)
    tensors = load_file(folder / "model.safetensors")
    tensors[TENSOR][0, 0] = float("nan")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize(
    "command",
    [
        "distill {good} --teacher {bad} --loss kl",
        "distill {bad} --teacher {good} --loss kl",
        "finetune {bad} --task ner",
    ],
)
def test_nan_weights_are_named(shell: Shell, pico_ner: Path, damaged: Path, command: str) -> None:
    refused = shell(f"{command.format(good=pico_ner, bad=damaged)} --data demo:ner --out out")
    assert refused.code == 1
    assert f"{TENSOR} holds NaN" in refused.err
    assert not Path("out").exists()


def test_a_student_that_predicts_nothing(shell: Shell, pico_ner: Path, copy_of: Callable[[Path], Path]) -> None:
    silent = copy_of(pico_ner)
    tensors = load_file(silent / "model.safetensors")
    tensors["classifier.bias"][0] = 1000.0  # the label O
    save_file(tensors, silent / "model.safetensors", metadata={"format": "pt"})
    Path("data").mkdir()
    for number, split in enumerate(("train", "dev", "test")):
        Path(f"data/{split}.tsv").write_text(f"the\tO\nlupus\tB-Disease\nof\tO\nmice\tO\nin\tO\nstudy{number}\tO\n\n")
    result = shell("distill", silent, "--teacher", silent, "--data", "data", "--steps", 1, "--out", "out")
    assert result.code == 0, result.err
    assert "predicts no entity at all on dev" in result.err
