"""How long a task is distilled when no length is given: for as long as dev scores rise."""

import json
import signal
from pathlib import Path
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file

from biosqueeze.training.optimiser import schedules
from tests import pico
from tests.cli.run import Shell, start
from tests.metrics_log import read_log


@pytest.fixture
def words(tuned: Path, tags: Path) -> tuple[object, ...]:
    return ("distill --student distil --precision fp32 --teacher", tuned, "--data", tags)


@pytest.mark.parametrize(
    ("options", "length"),
    [
        ((), "until dev scores stop rising, at most 6,000 steps (about "),
        (("--hours", 0.5), "until dev scores stop rising, at most 0.5 hours, lr"),
        (("--steps", 70), "70 steps, lr"),
        (("--epochs", 3), "3 epochs, lr"),
        (("--schedule", "linear"), "3 epochs, lr"),
        (("--schedule", "plateau", "--steps", 70), "until dev scores stop rising, at most 70 steps (about "),
    ],
)
def test_plan(options: tuple[object, ...], length: str, words: tuple[object, ...], shell: Shell) -> None:
    result = shell(*words, *options, "--dry-run", "--json")
    assert result.code == 0, result.err
    assert length in json.loads(result.out)["steps"][-1]


@pytest.mark.parametrize("student", ["bert", "roberta"])
def test_plan_of_a_student_without_the_teachers_head(
    student: str, tuned: Path, tags: Path, shell: Shell, tmp_path: Path
) -> None:
    pico.save(student, tmp_path / "plain", seed=1)  # two labels by its config, and RoBERTa's tokens are others
    result = shell("distill", tmp_path / "plain", "--teacher", tuned, "--data", tags, "--dry-run", "--json")
    assert result.code == 0, result.err
    assert "6,000 steps (about " in json.loads(result.out)["steps"][-1]


def test_stored_outputs_need_a_known_length(words: tuple[object, ...], shell: Shell) -> None:
    result = shell(*words, "--loss", "kl", "--cache-teacher", "cache", "--hours", 1)
    assert result.code == 2
    assert "with --hours their number is unknown; give --steps too" in result.err


def test_goes_on_while_dev_scores_rise(words: tuple[object, ...], shell: Shell) -> None:
    with mock.patch.object(schedules, "PLATEAU_EVAL_EVERY", 4):
        result = shell(*words, "--patience", 1, "--out", "student", "--json")
    assert result.code == 0, result.err
    steps = json.loads(result.out)["metrics"]["steps"]
    _start, *scores = [line["dev"]["f1"] for line in read_log(Path("student")) if "dev" in line]
    *rising, last = scores
    assert rising == sorted(set(rising))
    assert last <= rising[-1]
    assert steps == 4 * len(scores)
    assert f"stopped at step {steps}: the best score on dev is still {rising[-1]:.4f}" in result.err


def test_a_student_that_training_made_worse_is_kept_as_it_was(tuned: Path, tags: Path, shell: Shell) -> None:
    words = ("--teacher", tuned, "--data", tags, "--precision", "fp32")
    result = shell("distill", tuned, *words, "--steps", 3, "--lr", 0.5, "--out", "student", "--json")
    assert result.code == 0, result.err
    recorded = json.loads(result.out)["metrics"]
    assert (recorded["best_step"], recorded["start_score"]) == (0, round(recorded["f1"], 6))
    assert recorded["f1"] == pytest.approx(recorded["teacher_score"])
    assert "no step scored as high on dev as the weights before the training" in result.err
    assert f"kept the weights before the training, the best on dev: f1 {recorded['f1']:.4f}, 100.0%" in result.err
    before, after = (load_file(folder / "model.safetensors") for folder in (tuned, Path("student")))
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


def test_without_dev_it_has_epochs(tuned: Path, shell: Shell, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cells of patients\n")
    result = shell("distill --student distil --teacher", tuned, "--corpus", text, "--dry-run", "--json")
    assert "3 epochs" in json.loads(result.out)["steps"][-1]


def test_the_use_of_the_text_is_recorded(words: tuple[object, ...], shell: Shell, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"the cells of {number} patients sepsis syndrome\n" for number in range(50)))
    result = shell(*words, "--corpus", text, "--steps", 6, "--batch-size", 4, "--unlabelled", 3, "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["metrics"]["unlabelled"] == {"drawn": 18, "available": 50}
    assert "unlabelled: about 18 sequences were drawn, from 50" in result.err


def test_a_resumed_training_draws_the_same_text(words: tuple[object, ...], shell: Shell, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    lines = [f"the cells of {number} patients{' sepsis syndrome' * (number % 8 == 0)}\n" for number in range(80)]
    text.write_text("".join(lines))
    split = str(words[0]).split()
    common = (*split, *words[1:], "--corpus", text, "--steps", 40, "--save-every", 5, "--batch-size", 8)
    whole = shell(*common, "--out", "whole")
    assert whole.code == 0, whole.err
    assert "drawn to match" in whole.err, whole.err
    running = start(*common, "--out", "killed", log=tmp_path / "log")
    log = tmp_path / "killed.partial" / "metrics.jsonl"
    running.wait_for(lambda: log.is_file() and log.read_text().count("\n") >= 12)
    running.end(signal.SIGKILL)
    resumed = shell(*common, "--out", "killed", "--resume")
    assert resumed.code == 0, resumed.err
    assert "going on from step" in resumed.err
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert weights[0] == weights[1]
