"""Commands that kill themselves with SIGKILL right before they touch a file, as a machine that loses its power does."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tests.cli.run import start

Touches = Callable[[str, str], bool]
"""Whether this is the moment: given the audit event (os.rename, os.remove, ...) and the path that it changes."""


def renames_to(path: Path | str) -> Touches:
    """Right before a file or directory is renamed to this path."""
    return lambda event, target: event == "os.rename" and Path(target) == Path(path)


def removes(pattern: str) -> Touches:
    """Right before a file is removed whose path matches."""
    return lambda event, target: event == "os.remove" and Path(target).match(pattern)


def killed(*words: object, at: Touches, log: Path) -> None:
    """Run a command line in a fork of this process until the moment comes."""

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event in ("os.rename", "os.remove", "open", "os.mkdir"):
            target = arguments[1 if event == "os.rename" else 0]
            if isinstance(target, str | os.PathLike) and at(event, os.fspath(target)):
                os.kill(os.getpid(), signal.SIGKILL)

    running = start(*words, log=log, before=lambda: sys.addaudithook(hook))
    code = running.end()
    assert code == -signal.SIGKILL, log.read_text()
