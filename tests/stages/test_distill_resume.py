"""Distillations that were killed or interrupted."""

import signal
from pathlib import Path

from tests.cli.run import Shell, start
from tests.metrics_log import read_log
from tests.stages.distilling import QUICK


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
