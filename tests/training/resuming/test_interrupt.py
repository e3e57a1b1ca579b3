"""Signals during a training: the state is saved, and a signal that was to be ignored is ignored."""

import contextlib
import json
import os
import pty
import signal
import sys
import time
from pathlib import Path

import pytest

from biosqueeze.training.resuming.interrupt import interrupt_handler
from tests import pico
from tests.cli.run import start

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def default_handlers() -> object:
    """Whatever the tests were started by: nohup, a script's background job."""
    former = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_an_event(number: signal.Signals) -> None:
    with interrupt_handler() as interrupted:
        assert not interrupted.is_set()
        signal.raise_signal(number)
        assert interrupted.is_set()
        assert (signal.getsignal(number) is signal.SIG_DFL) == (number != signal.SIGHUP)  # a shell repeats SIGHUP
    assert all(signal.getsignal(each) is signal.SIG_DFL for each in SIGNALS)


@pytest.mark.parametrize("number", SIGNALS)
def test_an_ignored_signal_stays_ignored(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_IGN)
    with interrupt_handler() as interrupted:
        signal.raise_signal(number)
        assert not interrupted.is_set()
    assert signal.getsignal(number) is signal.SIG_IGN


@pytest.fixture
def command(pico_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("\n".join(pico.sentences(60)))
    words = ("--student", "distil", "--corpus", "text", "--precision", "fp32", "--save-every", 5, "--out", "out")
    return ("distill", "--teacher", pico_bert, *words)


def saved() -> list[int]:
    return [int(path.parent.name.partition("-")[2]) for path in Path("out.partial").glob("state-*/progress.json")]


def test_a_background_job_ignores_signals(command: tuple) -> None:
    def ignore() -> None:
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    running = start(*command, "--steps", 40, log=Path("log"), before=ignore)
    running.wait_for(saved)
    os.kill(running.process.pid or 0, signal.SIGHUP)
    assert running.end(signal.SIGINT) == 0, running.log.read_text()
    assert json.loads(Path("out/biosqueeze.json").read_text())["metrics"]["steps"] == 40


def test_a_closed_terminal_saves_the_state(command: tuple) -> None:
    child, terminal = pty.fork()
    if child == 0:
        words = [sys.executable, "-m", "biosqueeze", *map(str, command), "--steps", "100000"]
        os.execv(sys.executable, words)  # a fork alone would inherit the locks of this process's threads
    os.set_blocking(terminal, False)
    deadline = time.monotonic() + 120
    found: list[int] = []
    while not found and time.monotonic() < deadline:
        time.sleep(0.01)
        with contextlib.suppress(BlockingIOError):
            os.read(terminal, 1 << 16)
        found = saved()  # a second look may fall between the removal of this state and the next one
    before = max(found)
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 130
    assert len(saved()) == 1
    assert saved()[0] > before or saved()[0] % 5 != 0
