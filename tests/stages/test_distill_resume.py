"""Distillations that were killed or interrupted."""

import signal
from pathlib import Path

import pytest

from biosqueeze.distillation.teachers import memory_cache
from biosqueeze.training.best_weights import BestWeights
from tests.cli.run import Shell, start
from tests.metrics_log import read_log
from tests.stages.distilling import QUICK
from tests.training.interruption import press_ctrl_c


def test_killed_and_resumed_run_is_bit_identical(pico_bert: Path, text: Path, tmp_path: Path, shell: Shell) -> None:
    common = (
        "distill",
        "--teacher",
        pico_bert,
        "--student",
        "distil",
        "--corpus",
        text,
        "--steps",
        40,
        "--save-every",
        5,
    )
    whole = shell(*common, "--out", "whole", *QUICK)
    assert whole.code == 0, whole.err
    running = start(*common, "--out", "killed", *QUICK, log=tmp_path / "log")
    log = tmp_path / "killed.partial" / "metrics.jsonl"
    running.wait_for(lambda: log.is_file() and log.read_text().count("\n") >= 12)
    running.end(signal.SIGKILL)
    assert not (tmp_path / "killed").exists()
    refused = shell(*common, "--out", "killed", *QUICK)
    assert refused.code == 1
    assert "--resume" in refused.err
    resumed = shell(*common, "--out", "killed", "--resume", *QUICK)
    assert resumed.code == 0, resumed.err
    assert "going on from step" in resumed.err
    losses = [[step["loss"] for step in read_log(tmp_path / name)] for name in ("whole", "killed")]
    assert losses[0] == losses[1]
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert weights[0] == weights[1]


def test_resume_with_other_options_raises(pico_bert: Path, text: Path, tmp_path: Path, shell: Shell) -> None:
    common = ("distill", "--teacher", pico_bert, "--student", "distil", "--corpus", text, "--out", "x", *QUICK)
    running = start(*common, "--steps", 5000, "--save-every", 2, log=tmp_path / "log")
    running.wait_for(lambda: list(tmp_path.glob("x.partial/state-*")))
    assert running.end(signal.SIGINT) == 130
    assert "--resume goes on from there" in running.log.read_text()
    for words, names in (
        (("--lr", "1e-5"), "lr"),
        (("--loss", "mlm", "--loss", "cosine"), "loss"),
        (("--temperature", 3, "--mask-rate", 0.3), "mask_rate, temperature"),
        (("--student", "compact"), "student"),
        (("--corpus", "demo:text"), "data or corpus"),
    ):
        result = shell(*common, "--steps", 5000, "--resume", *words)
        assert (result.code, f"other values of {names};" in result.err) == (1, True), result.err
        is_read = "prepared" in result.err  # the text is read only where the options do not differ already
        assert is_read == (names == "data or corpus"), result.err


def test_teacher_outputs_in_memory_stay_there(
    tuned: Path, tags: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever memory is free when the training is resumed."""
    common = ("distill --teacher", tuned, "--student", "distil", "--data", tags, "--epochs", 3, *QUICK)
    update = BestWeights.update
    with monkeypatch.context() as patch:
        patch.setattr(memory_cache, "available_memory", lambda: 2**40)
        patch.setattr(BestWeights, "update", lambda *given: (press_ctrl_c(), update(*given)))
        assert shell(*common, "--out", "cut").code == 130
    for name, available in (("whole", 2**40), ("cut", 2**10)):
        monkeypatch.setattr(memory_cache, "available_memory", lambda available=available: available)
        result = shell(*common, "--out", name, *(("--resume",) if name == "cut" else ()))
        assert "labelled examples" in result.err and "in memory" in result.err, result.err
        assert result.code == 0
    assert Path("cut/model.safetensors").read_bytes() == Path("whole/model.safetensors").read_bytes()
