"""How the threads of PyTorch wait, as the command line sets it before PyTorch is loaded."""

import os
import subprocess
import sys

import pytest

from biosqueeze.system.threads import limit_spinning


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "")  # so that what the function sets is undone
        monkeypatch.delenv(name)


def test_threads_spin_shortly() -> None:
    limit_spinning()
    assert os.environ["GOMP_SPINCOUNT"] == "20000"


@pytest.mark.parametrize(("name", "value"), [("GOMP_SPINCOUNT", "7"), ("OMP_WAIT_POLICY", "active")])
def test_a_setting_of_the_user_is_kept(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    limit_spinning()
    assert os.environ[name] == value
    assert ("GOMP_SPINCOUNT" in os.environ) == (name == "GOMP_SPINCOUNT")


def test_the_command_line_sets_it_before_torch_is_loaded() -> None:
    code = (
        "import os, sys; from biosqueeze.cli.main import run\n"
        "assert 'torch' not in sys.modules\n"
        "assert run(['students', '--help']) == 0\n"
        "print('torch' in sys.modules, os.environ['GOMP_SPINCOUNT'])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "False 20000"
