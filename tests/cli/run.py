"""Run the command line in this process, as a shell would see it, or in a fork of it, to be interrupted."""

import io
import multiprocessing
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.context import ForkProcess
from pathlib import Path

import pytest

from biosqueeze.cli import main
from biosqueeze.data.text import prepared


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def path(self) -> str:
        """The one line on standard output."""
        (line,) = self.out.splitlines()
        return line


class Shell:
    """`shell("shrink", path, "--layers", "2")` gives exit code and what was said."""

    def __init__(self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.capfd, self.monkeypatch = capfd, monkeypatch

    def __call__(self, command: object, *words: object, stdin: str | None = None) -> Said:
        """Run a command line: `command` is split into words, the other words are taken as they are."""
        self.capfd.readouterr()
        if stdin is not None:
            self.monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        code = main.run([*shlex.split(str(command)), *map(str, words)])
        captured = self.capfd.readouterr()
        return Said(code, captured.out, captured.err)


@dataclass(frozen=True)
class Background:
    """A command line in a fork of this process: it needs none of the seconds that importing torch takes."""

    process: ForkProcess
    log: Path  # standard output and error, as one

    def wait_for(self, happened: Callable[[], object]) -> None:
        """Wait until something is true.

        Raises:
            AssertionError: The command ended before, or it took too long.
        """
        deadline = time.monotonic() + 300.0
        while not happened():
            if not self.process.is_alive() or time.monotonic() > deadline:
                self.end(signal.SIGKILL)
                raise AssertionError(f"ended too early, or took too long: {self.log.read_text()}")
            time.sleep(0.005)

    def end(self, number: signal.Signals | None = None, seconds: float = 300.0) -> int:
        """Send a signal, if any, and return the exit code; what still runs after the time is killed."""
        if number is not None and self.process.is_alive():
            os.kill(self.process.pid or 0, number)
        self.process.join(seconds)
        code = self.process.exitcode
        self.process.kill()
        assert code is not None, "did not end"
        return code


def start(
    *words: object,
    log: Path,
    environment: Mapping[str, object] | None = None,
    before: Callable[[], object] = lambda: None,
) -> Background:
    """Start a command line in a fork, as the leader of a process group; `before` is called in the fork first."""
    process = multiprocessing.get_context("fork").Process(
        target=_be, args=([str(word) for word in words], log, environment or {}, before)
    )
    process.start()
    return Background(process, log)


def _be(words: list[str], log: Path, environment: Mapping[str, object], before: Callable[[], object]) -> None:
    # The threads of tokenizers do not outlive a fork: its parallel mode, which preparing a corpus turns on, would wait
    # for them for ever.
    prepared._PARALLEL = "TOKENIZERS_PARALLELISM_OF_THE_PARENT"
    os.setpgid(0, 0)
    os.environ.update({name: str(value) for name, value in environment.items()})
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with log.open("w") as stream:
        sys.stdout = sys.stderr = stream
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
        before()
        code = main.run(words)
    os._exit(code)
