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
def test_where_the_cache_lies(monkeypatch, variables, expected):
    for name in ("BIOSQUEEZE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == expected


def _load(folder: Path) -> str | None:
    """A folder is whole when it has both files."""
    if not all((folder / name).is_file() for name in ("first", "second")):
        return None
    return (folder / "first").read_text() + (folder / "second").read_text()


def _make(folder: Path) -> None:
    (folder / "first").write_text("a")
    (folder / "second").write_text("b")


def test_made_once_and_then_found(tmp_path):
    folder = tmp_path / "not" / "yet" / "there"
    assert load_or_build(folder, _load, _make, "thing") == ("ab", True)
    assert load_or_build(folder, _load, lambda _: pytest.fail("made again"), "thing") == ("ab", False)


def test_what_is_found_needs_no_right_to_write(tmp_path, monkeypatch):
    load_or_build(tmp_path / "key", _load, _make, "thing")
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: pytest.fail("wrote"))
    (tmp_path / "key.lock").unlink()
    assert load_or_build(tmp_path / "key", _load, _make, "thing") == ("ab", False)
    assert not (tmp_path / "key.lock").exists()


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), ValueError("ours"), SqueezeError("explained")])
def test_what_is_interrupted_leaves_nothing(tmp_path, failure):
    def fail(folder: Path) -> None:
        (folder / "first").write_text("a")
        raise failure

    with pytest.raises(type(failure)):
        load_or_build(tmp_path / "key", _load, fail, "thing")
    assert [path.name for path in tmp_path.iterdir()] == ["key.lock"]
    assert load_or_build(tmp_path / "key", _load, _make, "thing") == ("ab", True)


def test_what_a_killed_process_left_is_removed(tmp_path):
    left, others = tmp_path / "key.0123abcd.partial", tmp_path / "key2.0123abcd.partial"
    for folder in (left, others):
        folder.mkdir()
        (folder / "first").write_text("a")
    load_or_build(tmp_path / "key", _load, _make, "thing")
    assert not left.exists()
    assert others.exists()


def test_what_is_damaged_is_made_again_and_said(tmp_path, capsys):
    load_or_build(tmp_path / "key", _load, _make, "thing")
    (tmp_path / "key" / "second").unlink()
    assert load_or_build(tmp_path / "key", _load, _make, "thing") == ("ab", True)
    assert "damaged" in capsys.readouterr().err


def test_a_maker_that_makes_nothing_whole_is_no_endless_loop(tmp_path):
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
        load_or_build(tmp_path / "file" / "key", _load, _make, "thing")


def _process(folder: Path, answers, locks: bool) -> None:
    """Make the folder slowly, under a name of one's own."""
    if not locks:
        import fcntl

        def refuse(*_: object) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        fcntl.flock = refuse

    def make(partial: Path) -> None:
        (partial / "first").write_text(f"{os.getpid()},")
        time.sleep(0.5)
        (partial / "second").write_text(f"{os.getpid()}")

    answers.put(load_or_build(folder, _load, make, "thing"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("locks", [True, False])
def test_processes_that_make_it_at_once_do_not_disturb_each_other(tmp_path, locks):
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    processes = [context.Process(target=_process, args=(tmp_path / "key", answers, locks)) for _ in range(3)]
    for process in processes:
        process.start()
    found = [answers.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert all(process.exitcode == 0 for process in processes)
    contents = {content for content, _ in found}
    assert len(contents) == 1
    first, second = contents.pop().split(",")
    assert first == second
    assert not list(tmp_path.glob("*.partial"))
    if locks:
        assert sorted(new for _, new in found) == [False, False, True]
