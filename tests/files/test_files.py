"""Files and directories are replaced atomically, locks exclude other writers, and a full disk is explained."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from biosqueeze import files
from biosqueeze.errors import SqueezeError
from biosqueeze.system import os_errors
from biosqueeze.system.locks import exclusive_lock


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


def test_link_that_leads_nowhere_is_an_output_that_exists(tmp_path: Path) -> None:
    out, partial = tmp_path / "out", tmp_path / "out.partial"
    out.symlink_to(tmp_path / "nowhere")
    with pytest.raises(SqueezeError, match="out exists already; give --force"):
        files.check_absent(out, force=False)
    files.check_absent(out, force=True)
    partial.mkdir()
    files.publish_directory(partial, out)
    assert out.is_dir() and not out.is_symlink() and list(tmp_path.iterdir()) == [out]


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


def test_content_hash_of_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")).write_text("x")
    first = files.content_hash(tmp_path)
    (tmp_path / "other").touch()
    assert files.content_hash(tmp_path) != first


def test_directory_is_published_where_it_cannot_be_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def of_files(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", of_files)
    (tmp_path / "out.partial" / "onnx").mkdir(parents=True)
    (tmp_path / "out.partial" / "onnx" / "file").touch()
    files.publish_directory(tmp_path / "out.partial", tmp_path / "out")
    assert (tmp_path / "out" / "onnx" / "file").exists()


def test_content_hash_of_much_content_shows_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "corpus.txt").write_bytes(b"abc" * 1_000_000)
    expected = files.content_hash(tmp_path)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(files, "_HASHED_SOON", 1)
    monkeypatch.setattr("biosqueeze.progress.LOG_EVERY_SECONDS", -1)
    assert files.content_hash(tmp_path) == expected
    assert f"check {tmp_path.name}, MB: 2/2" in capsys.readouterr().err


def test_content_hash_leaves_out_results_and_unfinished_output(tmp_path: Path) -> None:
    folder = write_content(tmp_path / "folder", "weights")
    expected = files.content_hash(folder)
    write_content(folder, "results/bench.json", "runs/events", "README.md", "x.partial/file", "y/z.runs/file")
    assert files.content_hash(folder) == expected
    write_content(folder, "y/results")
    assert files.content_hash(folder) != expected


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
    assert "directory where a file" in str(os_errors.advice_for(OSError(errno.EISDIR, "Is a directory")))
    assert "has failed" in str(os_errors.advice_for(OSError(errno.EIO, "Input/output error")))
    assert os_errors.advice_for(FileNotFoundError(errno.ENOENT, "No such file or directory")) is None
    assert os_errors.advice_for(OSError("no number")) is None
    assert os_errors.advice_for(ValueError("a bug")) is None


def test_two_writers_do_not_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    with files.open_atomic(path) as first, files.open_atomic(path) as second:
        first.write(b"first")
        second.write(b"second")
        second.flush()
        first.write(b", whole")
    assert path.read_bytes() == b"first, whole"  # the last one that ended
    assert list(tmp_path.iterdir()) == [path]


def test_directory_is_flushed_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partial, out = write_content(tmp_path / "out.partial", "a", "b/c"), tmp_path / "out"
    flushed: list[tuple[str, bool]] = []

    def fsync(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        flushed.append((path.name, out.exists()))

    monkeypatch.setattr("os.fsync", fsync)
    files.publish_directory(partial, out)
    assert sorted(flushed[:-1]) == [("a", False), ("b", False), ("c", False), ("out.partial", False)]
    assert flushed[-1] == (tmp_path.name, True)


def test_temporary_files_of_a_killed_process_are_not_published(tmp_path: Path) -> None:
    partial, out = write_content(tmp_path / "out.partial", "config.json", "card.1f2e.partial"), tmp_path / "out"
    files.publish_directory(partial, out)
    assert [path.name for path in out.iterdir()] == ["config.json"]


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077, 0o002])
def test_published_files_follow_the_umask(umask: int, tmp_path: Path) -> None:
    former = os.umask(umask)
    try:
        partial = write_content(tmp_path / "out.partial", "plain", "tool.sh", "deep/private")
        (partial / "tool.sh").chmod(0o700)
        for name in ("deep/private", "plain"):  # as safetensors and tempfile create them
            (partial / name).chmod(0o600)
        (partial / "deep").chmod(0o700)
        files.publish_directory(partial, tmp_path / "out")
        files.write_text(tmp_path / "text", "")
    finally:
        os.umask(former)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    ordinary = {"plain": 0o666, "private": 0o666, "text": 0o666, "out": 0o777, "deep": 0o777}
    assert modes == {name: mode & ~umask for name, mode in ordinary.items()} | {"tool.sh": 0o700 | 0o666 & ~umask}


def test_content_hash_sees_no_states_and_no_lock(tmp_path: Path) -> None:
    folder = write_content(tmp_path / "folder", "weights")
    expected = files.content_hash(folder)
    write_content(folder, ".lock", "state-00000012/model.safetensors")
    assert files.content_hash(folder) == expected
    for other in ("state-of-the-art/text", "state-00000012.txt"):
        write_content(folder, other)
        assert files.content_hash(folder) != expected
        (folder / other).unlink()


def test_the_file_of_a_killed_writer_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "file[1].json"
    code = (
        "import os, signal, sys; from pathlib import Path; from biosqueeze import files\n"
        "with files.open_atomic(Path(sys.argv[1])) as file: os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    (tmp_path / "file[1].json.partial").touch()  # of another name
    assert len(list(tmp_path.iterdir())) == 2
    with files.open_atomic(path):
        files.write_text(path, "by another writer")
        assert len(list(tmp_path.iterdir())) == 3  # the one that is being written is kept
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file[1].json", "file[1].json.partial"]
