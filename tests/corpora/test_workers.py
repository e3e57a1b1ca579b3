"""Worker processes end with the command, and one that is killed is explained."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from biosqueeze.corpora.workers import Advance, map_in_processes
from biosqueeze.errors import SqueezeError

SCRIPT = """
from tests.corpora import test_workers
print(test_workers.map_in_processes(test_workers.add_one, [1, 2], 2, lambda count: None))
"""
START = "from tests.corpora import test_workers; test_workers.start({!r})"


def note_and_wait(folder: Path, advance: Advance) -> None:
    """Leave the number of this process in a file, and wait."""
    (folder / str(os.getpid())).touch()
    time.sleep(60)


def end_hard(_item: int, _advance: Advance) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def start(folder: str) -> None:
    """Wait in two workers; the progress is not shown."""
    map_in_processes(note_and_wait, [Path(folder)] * 2, 2, lambda count: None)


def add_one(item: int, _advance: Advance) -> int:
    return item + 1


def until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it may end while it is read
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_the_command(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", START.format(str(tmp_path))]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as parent:
        assert until(lambda: len(list(tmp_path.iterdir())) == 2)
        os.killpg(parent.pid, number) if number == signal.SIGINT else os.kill(parent.pid, number)
        assert until(lambda: not any(runs(int(path.name)) for path in tmp_path.iterdir()))
        _, err = parent.communicate(timeout=30)
    assert err.count("Traceback") == (number == signal.SIGINT)  # this script's own


def test_a_killed_worker_is_explained() -> None:
    with pytest.raises(SqueezeError, match=r"a worker process was killed.*--resume"):
        map_in_processes(end_hard, [1, 2], 2, lambda count: None)


def test_workers_do_not_run_the_script_of_their_parent(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)  # without the `if __name__ == "__main__":` that multiprocessing asks for
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    for name, piped in ((script, None), ("-", SCRIPT)):
        command = [sys.executable, name]
        done = subprocess.run(command, input=piped, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "[2, 3]\n"), done.stderr
