import errno
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from biosqueeze.data.cache import cache_folder, load_or_build
from biosqueeze.errors import SqueezeError

HOME = Path("~").expanduser()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"BIOSQUEEZE_CACHE": "/big/disk", "XDG_CACHE_HOME": "/xdg"}, Path("/big/disk")),
        ({"BIOSQUEEZE_CACHE": "~/mine"}, HOME / "mine"),
        ({"XDG_CACHE_HOME": "/xdg"}, Path("/xdg/biosqueeze")),
        ({"BIOSQUEEZE_CACHE": ""}, HOME / ".cache" / "biosqueeze"),
        ({}, HOME / ".cache" / "biosqueeze"),
    ],
)
def test_the_cache_folder(monkeypatch, variables, expected):
    for name in ("BIOSQUEEZE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == expected


def _load(folder: Path) -> str | None:
    """Load a folder, which is complete if it has both files."""
    if not all((folder / name).is_file() for name in ("first", "second")):
        return None
    return (folder / "first").read_text() + (folder / "second").read_text()


def _build(folder: Path) -> None:
    (folder / "first").write_text("a")
    (folder / "second").write_text("b")


def test_a_folder_is_built_once_and_then_loaded(tmp_path):
    folder = tmp_path / "not" / "yet" / "there"
    assert load_or_build(folder, _load, _build, "thing") == ("ab", True)
    assert load_or_build(folder, _load, lambda _: pytest.fail("built again"), "thing") == ("ab", False)


def test_loading_needs_no_write_permission(tmp_path, monkeypatch):
    load_or_build(tmp_path / "key", _load, _build, "thing")
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: pytest.fail("wrote"))
    (tmp_path / "key.lock").unlink()
    assert load_or_build(tmp_path / "key", _load, _build, "thing") == ("ab", False)
    assert not (tmp_path / "key.lock").exists()


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), ValueError("error"), SqueezeError("explained")])
def test_an_interrupted_build_leaves_nothing(tmp_path, failure):
    def fail(folder: Path) -> None:
        (folder / "first").write_text("a")
        raise failure

    with pytest.raises(type(failure)):
        load_or_build(tmp_path / "key", _load, fail, "thing")
    assert [path.name for path in tmp_path.iterdir()] == ["key.lock"]
    assert load_or_build(tmp_path / "key", _load, _build, "thing") == ("ab", True)


def test_the_remains_of_a_killed_process_are_removed(tmp_path):
    abandoned, unrelated = tmp_path / "key.0123abcd.partial", tmp_path / "key2.0123abcd.partial"
    for folder in (abandoned, unrelated):
        folder.mkdir()
        (folder / "first").write_text("a")
    load_or_build(tmp_path / "key", _load, _build, "thing")
    assert not abandoned.exists()
    assert unrelated.exists()


def test_a_damaged_folder_is_built_again_and_logged(tmp_path, capsys):
    load_or_build(tmp_path / "key", _load, _build, "thing")
    (tmp_path / "key" / "second").unlink()
    assert load_or_build(tmp_path / "key", _load, _build, "thing") == ("ab", True)
    assert "damaged" in capsys.readouterr().err


def test_an_incomplete_build_is_an_error(tmp_path):
    with pytest.raises(SqueezeError, match="BIOSQUEEZE_CACHE"):
        load_or_build(tmp_path / "key", _load, lambda _: None, "thing")


def test_a_full_disk(tmp_path):
    def fail(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(SqueezeError, match=r"full.*BIOSQUEEZE_CACHE"):
        load_or_build(tmp_path / "key", _load, fail, "thing")
    assert not list(tmp_path.glob("key*.partial"))


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SqueezeError, match=r"cannot be written.*BIOSQUEEZE_CACHE"):
        load_or_build(tmp_path / "file" / "key", _load, _build, "thing")


def _build_slowly(folder: Path, results, locks: bool) -> None:
    """Build the folder in two steps, with the process id in each file."""
    if not locks:
        import fcntl

        def refuse(*_: object) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        fcntl.flock = refuse

    def build(partial: Path) -> None:
        (partial / "first").write_text(f"{os.getpid()},")
        time.sleep(0.5)
        (partial / "second").write_text(f"{os.getpid()}")

    results.put(load_or_build(folder, _load, build, "thing"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("locks", [True, False])
def test_concurrent_processes_build_one_folder(tmp_path, locks):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [context.Process(target=_build_slowly, args=(tmp_path / "key", results, locks)) for _ in range(3)]
    for process in processes:
        process.start()
    loaded = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert all(process.exitcode == 0 for process in processes)
    contents = {content for content, _ in loaded}
    assert len(contents) == 1
    first, second = contents.pop().split(",")
    assert first == second
    assert not list(tmp_path.glob("*.partial"))
    if locks:
        assert sorted(new for _, new in loaded) == [False, False, True]
