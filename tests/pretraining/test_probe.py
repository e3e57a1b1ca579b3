"""Ctrl-C during a probe, which may take far longer than a step: it ends, and is repeated with --resume."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from biosqueeze.finetuning import run_processes
from biosqueeze.finetuning.options import FineTuningOptions
from biosqueeze.pretraining.probe import FineTuningProbe
from tests.training import runs
from tests.training.interruption import press_ctrl_c

PLAIN = FineTuningOptions(steps=3, batch_size=4, precision="fp32", seed=3)


def test_an_interrupt_ends_the_fine_tuning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_processes, "COMMAND", ("sh", "-c", "exec sleep 60"))
    interrupt, started = threading.Event(), time.monotonic()
    threading.Timer(0.5, interrupt.set).start()
    probe = FineTuningProbe({"a": "demo:ner", "b": "demo:ner"}, (), lambda _: None, tmp_path)
    assert probe.scores(3, interrupt) is None
    assert time.monotonic() - started < 30


class Interrupted(FineTuningProbe):
    """A probe in which Ctrl-C is pressed the first time."""

    def scores(self, step: int, interrupt: threading.Event) -> dict[str, float] | None:
        if not self.directory.exists():
            self.directory.mkdir()
            press_ctrl_c()
        return None if interrupt.is_set() else {"a": 0.5}


@pytest.mark.parametrize("step", [2, 3], ids=["in the middle", "at the end"])
def test_an_interrupted_probe_is_repeated(step: int, tmp_path: Path) -> None:
    probe = Interrupted({}, (step,), lambda _: None, tmp_path / "first")
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt, match=f"the state at step {step} of 3 is saved"):
        runs.run(out, PLAIN, probe=probe)
    log = runs.run(out, replace(PLAIN, resume=True), probe=probe).log
    assert [line["step"] for line in log if "loss" in line] == [1, 2, 3]
    assert [line for line in log if "probe" in line] == [{"step": step, "probe": {"a": 0.5}}]
