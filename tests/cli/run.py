"""Run the command line in this process, as a shell would see it."""

import io
from dataclasses import dataclass

import pytest

from biosqueeze.cli import main


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

    def __call__(self, *words: object, stdin: str | None = None) -> Said:
        self.capfd.readouterr()
        if stdin is not None:
            self.monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        code = main.run([str(word) for word in words])
        captured = self.capfd.readouterr()
        return Said(code, captured.out, captured.err)
