"""Files and directories are replaced atomically, locks exclude other writers, and a full disk is explained."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from biosqueeze import files, os_errors
from biosqueeze.errors import SqueezeError
from biosqueeze.locks import exclusive_lock


def test_directory_replaces_links_and_leftovers(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "out.former.partial" / "old").mkdir(parents=True)
    for content in ("first", "second"):
        (tmp_path / "out.partial").mkdir()
        (tmp_path / "out.partial" / "file").write_text(content)
        files.publish_directory(tmp_path / "out.partial", tmp_path / "out")
        assert (tmp_path / "out" / "file").read_text() == content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "out"]


def test_text_is_replaced_or_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write_text(path, "old")
    with pytest.raises(ValueError, match="half"), files.open_atomic(path) as file:
        file.write(b"ne")
        raise ValueError("half")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    files.write_text(path, "new \ud800")
    assert path.read_text() == "new ?"
    assert list(tmp_path.iterdir()) == [path]


def test_file_is_flushed_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr("os.fsync", lambda _: calls.append(f"fsync, {(tmp_path / 'file').exists()}"))
    files.write_text(tmp_path / "file", "text")
    assert calls == ["fsync, False", "fsync, True"]  # the file, then its directory


def write_content(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def test_content_hash_is_of_names_and_bytes_in_a_fixed_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("b", "a/b", "a/c", "d/a")
    folder = write_content(tmp_path / "folder", *names)
    expected = files.content_hash(folder)
    paths = [folder / name for name in names]
    monkeypatch.setattr(Path, "rglob", lambda *_: iter(paths))
    assert files.content_hash(folder) == expected
    paths.reverse()
    assert files.content_hash(folder) == expected
    monkeypatch.undo()
    (folder / "a").rename(folder / "aa")
    assert files.content_hash(folder) != expected


def test_content_hash_leaves_out_results_and_unfinished_output(tmp_path: Path) -> None:
    folder = write_content(tmp_path / "folder", "weights")
    expected = files.content_hash(folder)
    write_content(folder, "results/bench.json", "runs/events", "README.md", "x.partial/file", "y/z.runs/file")
    assert files.content_hash(folder) == expected
    write_content(folder, "y/results")
    assert files.content_hash(folder) != expected


def test_partial_file_is_kept_on_request(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="half"), files.open_atomic(tmp_path / "file", keep_partial=True) as file:
        file.write(b"ne")
        raise ValueError("half")
    assert (tmp_path / "file.partial").read_bytes() == b"ne"


def test_lock_of_another_process_is_waited_for(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    hold = "import sys, filelock\nwith filelock.FileLock(sys.argv[1]):\n    print(flush=True); sys.stdin.readline()"
    command = [sys.executable, "-c", hold, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin and holder.stdout
        holder.stdout.readline()

        def refuse() -> None:
            raise SqueezeError("held")

        with pytest.raises(SqueezeError, match="held"), exclusive_lock(lock, refuse):
            pass
        with exclusive_lock(lock, lambda: holder.communicate("\n") and None) as locked:
            assert locked
    with exclusive_lock(lock, refuse):
        pass


def test_file_system_without_locks_is_used_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with exclusive_lock(tmp_path / "lock", pytest.fail) as locked:
        assert not locked


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk that holds x is full; free some space"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "the disk that holds x is full; free some space"),
        (OSError(errno.EACCES, "Permission denied"), r"x cannot be written \(Permission denied\); go elsewhere"),
    ],
)
def test_failed_writes_are_explained(error: OSError, says: str) -> None:
    with (
        pytest.raises(SqueezeError, match=says),
        os_errors.explained_writes("x", remedy="go elsewhere", when_full="free some space"),
    ):
        raise error


def test_advice_is_for_errors_of_the_system_only() -> None:
    assert "ulimit" in str(os_errors.advice_for(OSError(errno.EMFILE, "Too many open files")))
    assert os_errors.advice_for(OSError("no number")) is None
    assert os_errors.advice_for(ValueError("a bug")) is None
