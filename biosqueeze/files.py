"""Reading and writing files safely: JSON, a lock and an atomic rename of directories, content hashes."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from biosqueeze.errors import SqueezeError

# What a stage adds to a directory without changing the model: not part of its identity.
_NOT_CONTENT = {"README.md", "biosqueeze.json", "metrics.jsonl", "report.html", "results", "runs"}
# How directories end that are still being written.
_UNFINISHED = (".partial", ".runs")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        SqueezeError: the file is not UTF-8, not JSON, not an object, nested too deeply, or holds an endless number.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        cause = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise SqueezeError(f"{path} is not valid JSON ({cause}); restore the file or fetch it again") from error
    if not isinstance(value, dict):
        raise SqueezeError(f"{path} holds a {type(value).__name__}, a JSON object was expected; fetch it again")
    return value


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write JSON atomically: a reader sees the old file or the new one."""
    temporary = path.with_name(path.name + ".partial")
    try:
        temporary.write_text(json.dumps(value, indent=2, default=str) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def locked(partial: Path) -> Iterator[None]:
    """Hold an advisory lock, so that two processes never write one output. No lock where the system has none."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(partial, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SqueezeError(
                f"another biosqueeze is writing {partial} right now; wait for it, or give another --out"
            ) from error
        yield
    finally:
        os.close(handle)


def disk_is_full(error: BaseException, partial: Path) -> bool:
    """Whether an error comes from a disk that has no room left."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    if "No space left on device" in str(error):
        return True
    # torch and safetensors report a full disk in words of their own, so the disk itself is asked too.
    with contextlib.suppress(OSError):
        return not isinstance(error, SqueezeError | KeyboardInterrupt) and shutil.disk_usage(partial).free < 1 << 16
    return False


def flush(directory: Path) -> None:
    """See that all files below a directory are on the disk, and the directory too."""
    for path in [*directory.rglob("*"), directory]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def put_in_place(partial: Path, out: Path) -> None:
    """Rename partial to out; a former out is moved aside first and deleted last, so one of the two is always whole."""
    former = out.with_name(out.name + ".former.partial")
    _remove(former)  # left by a kill
    if out.exists():
        out.rename(former)
    partial.rename(out)
    _remove(former)


def _remove(path: Path) -> None:
    """Remove a directory, or a link to one; a directory that resists is left."""
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def content_hash(path: Path) -> str:
    """SHA-256 over names and bytes of a file or of all files below a directory.

    Results, cards, and what is still being written there are left out.
    """
    digest = hashlib.sha256()
    files = [path] if path.is_file() else [p for p in sorted(path.rglob("*")) if p.is_file()]
    for file in files:
        relative = file.relative_to(path) if file != path else Path(file.name)
        if relative.parts[0] in _NOT_CONTENT or any(part.endswith(_UNFINISHED) for part in relative.parts):
            continue
        digest.update(f"{relative}\0".encode())
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()
