"""The measuring process and its parent: protocol, order, and no process left behind."""

import os
import signal
import subprocess
import sys

import numpy as np
import psutil
import pytest

from biosqueeze.backends import worker
from biosqueeze.backends import worker_pool as _pool
from biosqueeze.backends.worker_pool import workers
from biosqueeze.errors import SqueezeError


class Clock:
    """Time that passes only when a model computes."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Slow:
    def __init__(self, clock, seconds) -> None:
        self.clock, self.seconds, self.shapes = clock, seconds, []

    def predict(self, batch):
        self.clock.now += self.seconds
        self.shapes.append(batch["input_ids"].shape)
        assert (batch["attention_mask"] == 1).all()
        return np.zeros((1, 1, 1), dtype=np.float32)


def order(path, **changes):
    usual = {"path": str(path), "name": "it", "spec": "torch", "threads": 1, "vocabulary": 100}
    return {**usual, "shapes": [[1, 4], [2, 8]], "warmup": 1, **changes}


def served(monkeypatch, orders, seconds=0.1):
    clock = Clock()
    slow = Slow(clock, seconds)
    monkeypatch.setattr(worker, "open_predictor", lambda *_: slow)
    answers = []
    worker.serve(iter(orders), answers.append, clock)
    return answers, slow


def test_warms_every_shape_then_measures_what_is_asked(monkeypatch) -> None:
    orders = [order("x", warmup=2), {"shape": [2, 8], "seconds": 0.55}, {"done": True}]
    (loaded, measured, done), slow = served(monkeypatch, orders)
    assert loaded == {"load_seconds": 0}
    assert measured["milliseconds"] == pytest.approx([100] * 6)
    assert done["peak_rss_mb"] > 10
    assert slow.shapes[:4] == [(1, 4), (1, 4), (2, 8), (2, 8)]
    assert set(slow.shapes[4:]) == {(2, 8)}


def test_at_least_three_runs(monkeypatch) -> None:
    answers, _ = served(monkeypatch, [order("x"), {"shape": [1, 4], "seconds": 0.0}])
    assert len(answers[1]["milliseconds"]) == 3


def test_peak_memory_is_this_process_alone() -> None:
    """getrusage would begin with the peak of the parent, which is not the model's."""
    hoard = bytearray(300_000_000)
    code = "from biosqueeze.backends.worker import peak_rss_mb; print(peak_rss_mb())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(said.stdout) < len(hoard) / 1e6


def test_a_real_worker_answers_and_ends(pico_ner) -> None:
    with workers(["it"], threads=1) as (one,):
        assert one.ask(order(pico_ner))["load_seconds"] > 0
        times = one.ask({"shape": [1, 4], "seconds": 0})["milliseconds"]
        assert len(times) == 3
        assert min(times) > 0
        pid = one.process.pid
        assert psutil.Process(pid).environ()["OMP_NUM_THREADS"] == "1"
    assert not psutil.pid_exists(pid)
    assert one.process.returncode == 0


def test_explained_failure_is_passed_on(pico_ner) -> None:
    with pytest.raises(SqueezeError, match="biosqueeze export it"), workers(["it"], threads=1) as (one,):
        one.ask(order(pico_ner, spec="onnxruntime"))


def test_crash_is_explained_with_its_last_words(pico_ner) -> None:
    broken = order(pico_ner)
    del broken["path"]
    words = r"measured student ended with code 1 \(KeyError: 'path'\)"
    with pytest.raises(SqueezeError, match=words), workers(["student"], threads=1) as (one,):
        one.ask(broken)


def test_killed_worker_is_explained() -> None:
    with (
        pytest.raises(SqueezeError, match=r"was ended by SIGKILL.*out of memory"),
        workers(["it"], threads=1) as (one,),
    ):
        os.kill(one.process.pid, signal.SIGKILL)
        one.process.wait()
        one.ask({})


def test_interrupt_leaves_no_process() -> None:
    with pytest.raises(KeyboardInterrupt), workers(["a", "b"], threads=1) as pool:
        pids = [one.process.pid for one in pool]
        raise KeyboardInterrupt
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_second_failing_to_start_ends_the_first(monkeypatch) -> None:
    started = []
    start = _pool._start

    def only_once(label, threads):
        if started:
            raise OSError("no more processes")
        started.append(start(label, threads))
        return started[0]

    monkeypatch.setattr(_pool, "_start", only_once)
    with pytest.raises(OSError, match="no more"), workers(["a", "b"], threads=1):
        pass
    assert started[0].process.returncode is not None
