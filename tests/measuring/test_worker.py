"""The measuring process and its parent: protocol, order of requests, and no process left running."""

import os
import signal
import subprocess
import sys

import numpy as np
import psutil
import pytest

from biosqueeze.errors import SqueezeError
from biosqueeze.measuring import worker, worker_pool
from biosqueeze.measuring.worker_pool import measuring_processes


class Clock:
    """A clock that advances only while a model computes."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class SlowPredictor:
    def __init__(self, clock, seconds) -> None:
        self.clock, self.seconds, self.shapes = clock, seconds, []

    def predict(self, batch):
        self.clock.now += self.seconds
        self.shapes.append(batch["input_ids"].shape)
        assert (batch["attention_mask"] == 1).all()
        return np.zeros((1, 1, 1), dtype=np.float32)


def first_request(path, **changes):
    defaults = {"path": str(path), "name": "it", "spec": "torch", "threads": 1, "device": "cpu", "vocabulary": 100}
    return {**defaults, "shapes": [[1, 4], [2, 8]], "warmup": 1, "overflowing": [], **changes}


def serve(monkeypatch, requests, seconds=0.1):
    clock = Clock()
    slow = SlowPredictor(clock, seconds)
    monkeypatch.setattr(worker, "open_predictor", lambda *_: slow)
    replies = []
    worker.serve(iter(requests), replies.append, clock)
    return replies, slow


def test_every_shape_is_warmed_up_before_measuring(monkeypatch) -> None:
    requests = [first_request("x", warmup=2), {"shape": [2, 8], "seconds": 0.55}, {"done": True}]
    (loaded, measured, done), slow = serve(monkeypatch, requests)
    assert loaded == {"load_seconds": 0}
    assert measured["milliseconds"] == pytest.approx([100] * 6)
    assert done["peak_rss_mb"] > 10
    assert slow.shapes[:4] == [(1, 4), (1, 4), (2, 8), (2, 8)]
    assert set(slow.shapes[4:]) == {(2, 8)}


def test_at_least_three_runs(monkeypatch) -> None:
    replies, _ = serve(monkeypatch, [first_request("x"), {"shape": [1, 4], "seconds": 0.0}])
    assert len(replies[1]["milliseconds"]) == 3


def test_the_wait_for_a_processor_is_that_of_the_runs(monkeypatch) -> None:
    waits = iter([{1: 2.0, 2: 0.5}, {1: 2.25, 2: 1.0, 3: 0.125}])
    monkeypatch.setattr(worker, "waited_seconds", lambda: next(waits))
    replies, _ = serve(monkeypatch, [first_request("x"), {"shape": [1, 4], "seconds": 0.0}])
    assert replies[1]["waited_seconds"] == 0.5
    assert replies[1]["seconds"] == pytest.approx(0.5)  # three runs and two untimed ones


def test_peak_memory_excludes_the_parent() -> None:
    """getrusage would start from the peak of the parent, which has nothing to do with the model."""
    ballast = bytearray(300_000_000)
    code = "from biosqueeze.measuring.worker import peak_rss_mb; print(peak_rss_mb())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < len(ballast) / 1e6


def test_a_real_worker_replies_and_ends(exported) -> None:
    """With the runtime that starts quickly; bench is run with PyTorch in test_real_processes_on_both_runtimes."""
    path = exported("bert", "token-classification")
    with measuring_processes(["it"], threads=1) as (process,):
        assert process.request(first_request(path, spec="onnxruntime"))["load_seconds"] > 0
        times = process.request({"shape": [1, 4], "seconds": 0})["milliseconds"]
        assert len(times) == 3
        assert min(times) > 0
        pid = process.process.pid
        assert psutil.Process(pid).environ()["OMP_NUM_THREADS"] == "1"
    assert not psutil.pid_exists(pid)
    assert process.process.returncode in (0, -signal.SIGTERM)  # the end of its input ends it in either way


def test_explained_failure_is_passed_on(pico_ner) -> None:
    with (
        pytest.raises(SqueezeError, match="biosqueeze export it"),
        measuring_processes(["it"], threads=1) as (process,),
    ):
        process.request(first_request(pico_ner, spec="onnxruntime"))


def test_crash_message_has_the_last_line_of_stderr(pico_ner) -> None:
    broken = first_request(pico_ner)
    del broken["path"]
    words = r"measured student ended with code 1 \(KeyError: 'path'\)"
    with pytest.raises(SqueezeError, match=words), measuring_processes(["student"], threads=1) as (process,):
        process.request(broken)


def test_killed_process_is_explained() -> None:
    with (
        pytest.raises(SqueezeError, match=r"was ended by SIGKILL.*out of memory"),
        measuring_processes(["it"], threads=1) as (process,),
    ):
        os.kill(process.process.pid, signal.SIGKILL)
        process.process.wait()
        process.request({})


def test_exhausted_memory_is_explained(exported) -> None:
    giant = first_request(exported("bert", "token-classification"), spec="onnxruntime", shapes=[[10**7, 10**6]])
    with (
        pytest.raises(SqueezeError, match="the memory is exhausted by it; give smaller batches"),
        measuring_processes(["it"], threads=1) as (process,),
    ):
        process.request(giant)


def test_interrupt_leaves_no_process() -> None:
    with pytest.raises(KeyboardInterrupt), measuring_processes(["a", "b"], threads=1) as pool:
        pids = [process.process.pid for process in pool]
        raise KeyboardInterrupt
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_second_failing_to_start_ends_the_first(monkeypatch) -> None:
    started = []
    start = worker_pool._start

    def only_once(label, threads):
        if started:
            raise OSError("no more processes")
        started.append(start(label, threads))
        return started[0]

    monkeypatch.setattr(worker_pool, "_start", only_once)
    with pytest.raises(OSError, match="no more"), measuring_processes(["a", "b"], threads=1):
        pass
    assert started[0].process.returncode is not None
