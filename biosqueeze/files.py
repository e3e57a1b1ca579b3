"""Read JSON with explained errors, write files and directories atomically, and hash their content."""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from biosqueeze.errors import SqueezeError

# What a stage adds to a directory without changing the model is not part of the content.
_NOT_CONTENT = {"README.md", "biosqueeze.json", "metrics.jsonl", "report.html", "results", "runs"}
# The ends of directory names that are still being written.
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


@contextmanager
def open_atomic(path: Path, *, keep_partial: bool = False) -> Iterator[BinaryIO]:
    """Open FILE.partial for writing; flush it to the disk and rename it to FILE at the end of the body.

    A reader sees the old file or the new one, also after a crash.

    Args:
        path: the file.
        keep_partial: leave FILE.partial in place where the body raises; else it is deleted.

    Raises:
        OSError: the file cannot be written, or the disk is full; the old file is kept.
    """
    temporary = path.with_name(f"{path.name}.partial")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        if not keep_partial:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        raise


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
    """
    _flush(partial)
    former = out.with_name(f"{out.name}.former.partial")
    _remove(former)  # left by a process that was killed
    if out.exists():
        out.rename(former)
    partial.rename(out)
    _remove(former)


def _flush(directory: Path) -> None:
    for path in [*directory.rglob("*"), directory]:
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

    Results, cards, and directories that are still being written are left out.
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
