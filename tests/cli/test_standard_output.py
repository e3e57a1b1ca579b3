"""Standard output that is closed, or has another encoding."""

import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from biosqueeze.cli.streams import write_lines
from biosqueeze.errors import SqueezeError
from tests.cli.run import Shell


def test_output_is_utf8_in_every_locale() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-m", "biosqueeze", "students"], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "─" in done.stdout.decode("utf-8")


def test_closed_standard_output_is_explained() -> None:
    command = f"{sys.executable} -m biosqueeze students >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, "error: standard output is closed" in done.stderr) == (1, True), done.stderr


class _Full(io.StringIO):
    """A stream that takes nothing, and forgets what it did not take."""

    def write(self, _text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_full_output_of_recipes_and_lines_is_explained(
    recipe: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = "standard output cannot be written (No space left on device); redirect it to another place"
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout", _Full())
        said = shell("run", recipe, "--dry-run", "--json")
    assert said.err.splitlines()[-1] == f"error: {wanted}"
    with Path("/dev/full").open("wb") as full, pytest.raises(SqueezeError) as caught:
        write_lines((line for line in ["{}\n"]), full.fileno())
    assert str(caught.value) == wanted


def test_full_standard_output_is_explained() -> None:
    command = f"{sys.executable} -m biosqueeze tasks >/dev/full"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    wanted = "error: standard output cannot be written (No space left on device); redirect it to another place"
    assert done.stderr.splitlines()[-1] == wanted


def test_a_piped_path_may_be_no_utf_8(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9\n"), encoding="utf-8"))
    said = shell("inspect", "-")
    assert (said.code, "is not UTF-8; rename it" in said.err) == (2, True), said.err
