"""Scripts in the working directory are no modules of the processes that biosqueeze starts."""

import sys
from pathlib import Path

import pytest

from biosqueeze.finetuning.run_processes import RunProcesses
from biosqueeze.measuring import worker_pool


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with a script whose name is that of a module."""
    (tmp_path / "statistics.py").write_text("raise SystemExit('mine')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])


def test_a_run_imports_no_script(tmp_path: Path) -> None:
    assert "BLURB" in RunProcesses().call("a run", ["tasks", "blurb"], {}, tmp_path / "log" / "run.log")


@pytest.mark.parametrize("path", [None, "", "."])
def test_a_measuring_process_imports_as_this_one(path: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setattr(worker_pool.subprocess, "Popen", lambda _words, **settings: started.append(settings["env"]))
    if path is not None:
        monkeypatch.syspath_prepend(str(Path.cwd()) if path else "")
    worker_pool._start("a model", 1).stderr.close()
    assert started[0].get("PYTHONSAFEPATH") == (None if path is not None else "1")
