"""Processes that biosqueeze starts end with it, also where it is killed and cannot end them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import filelock
import pytest

from tests.cli.run import start

TIMEOUT = 120  # only a failing test waits for so long
WAITING = (
    "import time; from biosqueeze.system.parent import end_with_parent; "
    "end_with_parent(); print(flush=True); time.sleep(60)"
)
# Behaves like the measuring process of a model that is slow.
MEASURING = (
    "import time; from biosqueeze.measuring import worker;"
    "worker.serve = lambda requests, reply: (print(next(requests)), reply({}), time.sleep(60)); worker.main()"
)


@pytest.mark.parametrize("code", [WAITING, MEASURING], ids=["run", "measuring"])
def test_a_process_ends_when_its_input_ends(code: str) -> None:
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        process.stdin.write(b"{}\n")
        process.stdin.flush()
        assert process.stdout.readline()  # it is at work
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(TIMEOUT) == -signal.SIGTERM


def test_a_parent_that_ended_before_is_noticed() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    with subprocess.Popen([sys.executable, "-c", WAITING], stdin=reading, stdout=subprocess.PIPE) as process:
        os.close(reading)
        assert process.wait(TIMEOUT) == -signal.SIGTERM


def test_a_killed_search_leaves_no_training(pico_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    for name in ("train", "dev"):
        Path("data", f"{name}.tsv").write_text("sepsis\tB-Disease\n,\tO\n\nthe\tO\nlupus\tB-Disease\n" * 50)
    words = ("--data", "data", "--grid", "lr=1e-4", "--epochs", 100_000, "--save-every", 20, "--precision", "fp32")
    running = start("finetune", pico_bert, *words, "--out", "out", log=Path("log"))
    training = Path("out.runs/lr=0.0001/seed-0.partial")
    running.wait_for(lambda: list(training.glob("state-*/progress.json")))
    running.end(signal.SIGKILL)
    with filelock.FileLock(training / ".lock", timeout=TIMEOUT):  # held until the training has ended
        assert len(list(training.glob("state-*/progress.json"))) == 1
    assert "interrupted: the state at step" in training.with_name("seed-0.log").read_text()
