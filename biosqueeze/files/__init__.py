"""Read JSON with explained errors, write files and directories atomically, and hash their content."""

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from biosqueeze.errors import SqueezeError
from biosqueeze.files.parsing import parse_json, read_text
from biosqueeze.files.saved_states import is_state_folder
from biosqueeze.progress import ProgressBar, track

LOCK_FILE = ".lock"
LFS_POINTER = b"version https://git-lfs"
"""The beginning of what a repository that was cloned without Git LFS has in place of a large file."""
# What a stage adds to a directory without changing the model is not part of the content.
_NOT_CONTENT = {
    "README.md",
    "biosqueeze.json",
    "metrics.jsonl",
    "warm-start.jsonl",
    "report.html",
    "results",
    "runs",
    LOCK_FILE,
}
# A parsed object takes up to 30 times the bytes of its text. The vocabularies of the largest BPE tokenizers take 10 MB.
_SMALL_BYTES = 1 << 24
_MEGABYTE = 1 << 20
_HASHED_SOON = 500  # megabytes, in about two seconds
# The ends of directory names that are still being written.
_UNFINISHED = (".partial", ".runs")


def read_json(path: Path, most: int = _SMALL_BYTES) -> dict[str, Any]:
    """Read a JSON object of at most this number of bytes.

    Raises:
        SqueezeError: the file is too large, not UTF-8, not JSON, not an object, nested too deeply, or holds a number
            without end.
    """
    check_size(path, most)
    try:
        value = parse_json(read_text(path))
    except ValueError as error:
        raise SqueezeError(f"{path} is not valid JSON ({error}); restore the file or fetch it again") from error
    if not isinstance(value, dict):
        raise SqueezeError(f"{path} holds a {type(value).__name__}, a JSON object was expected; fetch it again")
    return value


def read_small_text(path: Path) -> str:
    """Read a text file of a checkpoint, such as a vocabulary; with line ends as Python has them.

    Raises:
        SqueezeError: the file is too large, or not UTF-8.
    """
    check_size(path)
    try:
        return read_text(path).replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise SqueezeError(f"{path} is not UTF-8; fetch or copy it again") from error


def check_size(path: Path, most: int = _SMALL_BYTES) -> None:
    """Check that a file has at most this number of bytes.

    Raises:
        SqueezeError: it has more.
    """
    size = path.stat().st_size
    if size > most:
        raise SqueezeError(f"{path} has {size:,} bytes, at most {most:,} were expected; fetch the file again")


def is_lfs_pointer(path: Path) -> bool:
    """Return whether Git LFS has not fetched a file."""
    with path.open("rb") as file:
        return file.read(len(LFS_POINTER)) == LFS_POINTER


def lfs_pointer_error(name: Path | str, content: str) -> SqueezeError:
    """Return the error for a file that Git LFS has not fetched; `content` is what the file would hold."""
    return SqueezeError(f"{name} is a Git LFS pointer and not {content}; run `git lfs pull` there")


def megabytes(files: Iterable[Path]) -> float:
    """Return the size of files, in millions of bytes."""
    return sum(file.stat().st_size for file in files) / 1e6


def check_absent(out: Path, *, force: bool) -> None:
    """Check that an output may be written.

    Raises:
        SqueezeError: it exists, a link to nothing included, and is not to be replaced.
    """
    if os.path.lexists(out) and not force:
        raise SqueezeError(f"{out} exists already; give --force to replace it, or another name with --out")


@contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file for writing; flush it to the disk and rename it to FILE at the end of the body.

    A reader sees the old file or the new one, also after a crash. Processes that write the same file at the same time
    have a temporary file each; the file of the last one stays.

    Args:
        path: the file.

    Raises:
        OSError: the file cannot be written, or the disk is full; the old file is kept.
    """
    _remove_abandoned(path)
    file = _open_temporary(path)
    temporary = Path(file.name)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _open_temporary(path: Path) -> BinaryIO:
    """Create a temporary file beside a file, and lock it."""
    while True:
        temporary = path.with_name(f"{path.name}.{os.urandom(4).hex()}.partial")
        file = temporary.open("xb")
        with contextlib.suppress(OSError):  # some file systems have no locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if temporary.exists():  # else another process has removed it before it was locked
            return file
        file.close()


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files of a file whose writers were killed: those that no process has locked."""
    for temporary in path.parent.glob(f"{glob.escape(path.name)}.{'[0-9a-f]' * 8}.partial"):
        with contextlib.suppress(OSError), temporary.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            temporary.unlink()


def rename(source: Path, target: Path) -> None:
    """Rename a file or directory, replacing a file or an empty directory, and flush the new name to the disk."""
    source.replace(target)
    flush(target.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically; what UTF-8 cannot encode (half of a surrogate pair) becomes a question mark."""
    with open_atomic(path) as file:
        file.write(text.encode(errors="replace"))


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object atomically; values that JSON lacks, such as paths, are written as strings."""
    write_text(path, json.dumps(value, indent=2, default=str) + "\n")


def publish_directory(partial: Path, out: Path) -> None:
    """Flush a directory to the disk and rename it to `out`.

    An existing `out` is moved aside first and deleted last, so that one of the two is complete at any moment.
    Temporary files that a killed process has left in the directory are not published.
    """
    for temporary in partial.glob("*.partial"):
        if temporary.is_file():
            temporary.unlink()
    flush_directory(partial)
    former = out.with_name(f"{out.name}.former.partial")
    _remove(former)  # left by a process that was killed
    if os.path.lexists(out):  # no directory can be renamed to a link that leads nowhere
        out.rename(former)
    rename(partial, out)
    _remove(former)


def flush_directory(directory: Path) -> None:
    """Flush all files below a directory to the disk, and let everyone read them whom the umask lets read.

    safetensors, for one, creates its files for their owner alone.
    """
    allowed = directory.stat().st_mode
    for path in [*directory.rglob("*"), directory]:
        if not path.is_symlink():
            _allow(path, allowed & (0o777 if path.is_dir() else 0o666))
        flush(path)


def _allow(path: Path, mode: int) -> None:
    """Add permissions that a file or directory lacks."""
    current = stat.S_IMODE(path.stat().st_mode)
    if mode & ~current:
        with contextlib.suppress(PermissionError):  # some file systems have none
            path.chmod(current | mode)


def flush(path: Path) -> None:
    """Flush a file or directory to the disk; some file systems cannot flush a directory, which is then left out."""
    with contextlib.suppress(OSError) if path.is_dir() else nullcontext():
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _remove(path: Path) -> None:
    """Remove a directory, or a link to one; what cannot be deleted is left."""
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def content_hash(path: Path) -> str:
    """Return the SHA-256 over names and bytes of a file or of all files below a directory.

    Results, cards, training states, and what is still being written are left out.
    """
    digest = hashlib.sha256()
    names = {path: path.name}
    if not path.is_file():
        files = {file: file.relative_to(path) for file in sorted(path.rglob("*")) if file.is_file()}
        names = {file: str(relative) for file, relative in files.items() if not _is_left_out(relative.parts)}
    megabytes_of_all = sum(file.stat().st_size for file in names) // _MEGABYTE
    with (
        track(f"check {path.resolve().name}, MB", megabytes_of_all)
        if megabytes_of_all > _HASHED_SOON
        else nullcontext() as bar
    ):
        for file, name in names.items():
            digest.update(f"{name}\0".encode(errors="surrogateescape"))
            digest.update(_digest(file, bar))
    return digest.hexdigest()


def _digest(file: Path, bar: ProgressBar | None) -> bytes:
    """Return the SHA-256 of a file; the bar advances with every megabyte."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(_MEGABYTE):
            digest.update(block)
            if bar:
                bar.advance(len(block) // _MEGABYTE)
    return digest.digest()


def _is_left_out(parts: tuple[str, ...]) -> bool:
    first = parts[0]
    is_state = len(parts) > 1 and is_state_folder(first)
    return first in _NOT_CONTENT or is_state or any(part.endswith(_UNFINISHED) for part in parts)
