"""Standard output that is closed, or has another encoding."""

import os
import subprocess
import sys


def test_output_is_utf8_in_every_locale() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-m", "biosqueeze", "students"], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "─" in done.stdout.decode("utf-8")


def test_closed_standard_output_is_explained() -> None:
    command = f"{sys.executable} -m biosqueeze students >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, "error: standard output is closed" in done.stderr) == (1, True), done.stderr


def test_full_standard_output_is_explained() -> None:
    command = f"{sys.executable} -m biosqueeze tasks >/dev/full"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    wanted = "error: standard output cannot be written (No space left on device); redirect it to another place"
    assert done.stderr.splitlines()[-1] == wanted
