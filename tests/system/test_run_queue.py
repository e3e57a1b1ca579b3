"""How long threads waited for a processor."""

import os
import subprocess
import sys
import threading
import time

import pytest

from biosqueeze.system import run_queue
from biosqueeze.system.run_queue import longest_wait, waited_seconds

COUNTED = threading.get_native_id() in waited_seconds()


@pytest.mark.skipif(not COUNTED, reason="the kernel does not count it")
def test_two_processes_on_one_processor_wait_for_one_another() -> None:
    before, processors = waited_seconds(), os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})
    try:
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
            end = time.monotonic() + 1
            while time.monotonic() < end:
                pass
            other.kill()
    finally:
        os.sched_setaffinity(0, processors)
    assert longest_wait(before, waited_seconds()) > 0.1


def test_a_kernel_without_counts(tmp_path, monkeypatch) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1/schedstat").write_text("0\n")
    monkeypatch.setattr(run_queue, "_THREADS", tmp_path)
    assert waited_seconds() == {}
    assert longest_wait({}, {}) == 0
