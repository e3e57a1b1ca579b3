"""What the messages of shrink propose: each is followed, or names what is in the way."""

import re
import shlex
from pathlib import Path

import pytest

from tests import pico
from tests.cli.run import Shell

LAYERS_ALONE = ("--importance", "leave-one-out", "--calibration", "demo:text")
WIDTHS_TOO = "--importance activation, fisher, magnitude, taylor or wanda"


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (("--params", "50K"), f"so the budget cuts no heads and neurons; {WIDTHS_TOO} scores them too"),
        (("--width", "0.5"), f"cut the width of what it writes with {WIDTHS_TOO}"),
    ],
)
def test_importances_of_widths_are_named(shell: Shell, pico_bert: Path, cut: tuple[str, ...], message: str) -> None:
    said = shell("shrink", pico_bert, *cut, *LAYERS_ALONE, "--dry-run").err
    assert said.count(message) == 1, said


@pytest.mark.parametrize(
    ("family", "cut", "message"),
    [
        ("albert", ("--params", "5K"), "so have smaller embeddings (--embedding, without a budget)"),
        ("electra", ("--params", "1K"), "so have smaller embeddings (--embedding, without a budget)"),
        ("albert", ("--width", "0.5"), "give --layers, or --embedding for fewer parameters"),
    ],
)
def test_embeddings_in_the_way_are_named(shell: Shell, tmp_path: Path, family: str, cut: tuple, message: str) -> None:
    said = shell("shrink", pico.save(family, tmp_path / family), *cut, "--dry-run")
    assert said.code == 2 and message in said.err, said.err


@pytest.mark.parametrize("family", ["bert", "electra"])
def test_the_least_budget_is_exact(shell: Shell, tmp_path: Path, family: str) -> None:
    model = pico.save(family, tmp_path / family)
    said = shell("shrink", model, "--params", 1000, "--dry-run").err
    least = re.search(r"give --params (\d+) or more", said)
    assert least and f"{int(least[1]):,} parameters" in said, said
    assert shell("shrink", model, "--params", int(least[1]) - 1, "--dry-run").code == 2
    assert shell("shrink", model, "--params", least[1], "--out", "least").code == 0


@pytest.mark.parametrize("name", ["nothere", "folder"])
def test_what_calibration_takes_is_said(shell: Shell, pico_bert: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "train.py").touch()
    said = shell("shrink", pico_bert, "--layers", 2, "--calibration", tmp_path / name)
    assert said.code == 1 and "--task" not in said.err
    assert "takes text (.txt, .jsonl, .gz) or the directory of a task, with files such as train.tsv" in said.err


@pytest.mark.parametrize(
    ("cut", "importance", "other"),
    [(("--layers", "2"), "leave-one-out", "block-influence"), (("--ffn", "8"), "fisher", "wanda")],
)
def test_an_importance_of_text_is_proposed(
    shell: Shell, pico_ner: Path, cut: tuple[str, ...], importance: str, other: str
) -> None:
    words = ("shrink", pico_ner, *cut, "--calibration", "demo:text", "--dry-run", "--importance")
    said = shell(*words, importance)
    assert said.code == 2 and f"or --importance {other}, which needs only text" in said.err
    assert shell(*words, other).code == 0


def test_the_ends_of_a_width_are_explained(shell: Shell, pico_bert: Path) -> None:
    for more in ((), ("--layers", 2)):
        said = shell("shrink", pico_bert, "--width", 0.99, *more)
        assert said.code == 2 and "is rounded to all 64 neurons and 4 heads" in said.err
        assert said.err.strip().endswith("give 0.96 or less")
    assert shell("shrink", pico_bert, "--width", 0.96, "--dry-run").code == 0
    assert "below the smallest share of the heads, 1 of 4 (0.25)" in shell("shrink", pico_bert, "--width", 0.01).err
    assert "smallest share" not in shell("shrink", pico_bert, "--width", 0.25, "--dry-run").err


def test_a_width_without_smaller_ones(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pico, "HEADS", 1)
    monkeypatch.setattr(pico, "FFN", 1)
    said = shell("shrink", pico.save("bert", tmp_path / "narrow"), "--width", 0.5)
    assert said.code == 2 and "all 1 neurons and 1 heads, so nothing would be narrower; leave it out" in said.err


@pytest.mark.parametrize(("student", "stays"), [("biolm-base", True), ("bert-tiny", False), ("electra-small", False)])
def test_the_family_of_a_student_is_said(shell: Shell, pico_bert: Path, student: str, stays: bool) -> None:
    said = shell("shrink", pico_bert, "--student", student, "--dry-run").err
    assert ("only the shape is that of a roberta, the family stays bert" in said) == stays, said


def test_a_run_says_the_family_of_its_student(shell: Shell, pico_roberta: Path) -> None:
    said = shell("shrink", pico_roberta, "--student", "bert-tiny", "--out", "student").err
    assert "only the shape is that of a bert, the family stays roberta" in said


def test_all_layers_are_no_step_of_a_plan(shell: Shell, pico_bert: Path) -> None:
    for more in ((), ("--calibration", "demo:text"), ("--steps-of", 8, "--layers", 3)):
        planned = shell("shrink", pico_bert, "--layers", 4, "--ffn", 32, *more, "--dry-run")
        assert planned.code == 0 and "neurons in each layer" in planned.err
        assert "layers 0" not in planned.err and "of 4 layers" not in planned.err, planned.err


def test_lost_tokens_are_trained_next(shell: Shell, tuned: Path, tags: Path) -> None:
    words = ("shrink", tuned, "--vocab-keep", tags, "--vocab-size")
    planned = shell(*words, 180, "--dry-run")
    assert re.search(r"warning: \d+\.\d% of the tokens of the text are lost", planned.err), planned.err
    for more in ((), ("--layers", 2)):
        written = shell(*words, 180, *more, "--out", f"cut-{len(more)}")
        assert written.err.count("tokens of the text are lost") == 1
    following = written.err.splitlines()[-1].removeprefix("next: biosqueeze ")
    assert following == f"finetune cut-2 --task ner --data {tags}"
    assert shell(*shlex.split(following), "--epochs", 1, "--max-length", 64).code == 0
    whole = shell("shrink", tuned, "--vocab-keep", tags, "--out", "whole")
    assert "are lost" not in whole.err and "next: biosqueeze evaluate whole" in whole.err


def test_lost_tokens_of_an_encoder_without_a_task(shell: Shell, pico_bert: Path, tags: Path) -> None:
    said = shell("shrink", pico_bert, "--vocab-keep", tags, "--vocab-size", 180, "--out", "cut").err
    assert "next: biosqueeze finetune cut --data" in said and "are lost" in said
