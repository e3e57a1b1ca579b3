"""Errors of the operating system that the user can put right, such as a full disk, and the advice for each."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from biosqueeze.errors import SqueezeError

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT}
_LEAST_FREE_BYTES = 1 << 16
_ADVICE = {
    **dict.fromkeys(_DISK_FULL, "free some space, or give --out another place"),
    errno.EROFS: "give --out a place that can be written to",
    errno.EACCES: "check who may read and write there (`ls -ld`)",
    errno.EPERM: "check who may read and write there (`ls -ld`)",
    errno.EEXIST: "there is a file where a directory was expected; check the path",
    errno.ENOTDIR: "there is a file where a directory was expected; check the path",
    errno.EISDIR: "there is a directory where a file was expected; check the path",
    errno.ENAMETOOLONG: "give a shorter name",
    errno.EIO: "the disk, or the network to it, has failed; check it, and repeat the command",
    errno.ESTALE: "the disk, or the network to it, has failed; check it, and repeat the command",
    errno.EMFILE: "allow more open files (`ulimit -n`)",
}


def advice_for(error: BaseException) -> str | None:
    """Return what the user can do about an error of the operating system; None where it may be a bug."""
    if isinstance(error, FileNotFoundError) and error.filename is None and _is_current_directory_gone():
        return "the current directory was removed; change to another one with cd"
    return _ADVICE.get(error.errno or 0) if isinstance(error, OSError) else None


def _is_current_directory_gone() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - Path.cwd is the same
    except FileNotFoundError:
        return True
    return False


def is_disk_full(error: BaseException, directory: Path | None = None) -> bool:
    """Return whether an error was caused by a full disk.

    Args:
        error: torch and safetensors report a full disk by errors of their own.
        directory: where files were being written; for an error of unclear cause its free space is checked.
    """
    if isinstance(error, OSError) and error.errno in _DISK_FULL:
        return True
    if "No space left on device" in str(error):
        return True
    if directory is not None and not isinstance(error, SqueezeError | KeyboardInterrupt):
        with suppress(OSError):
            return shutil.disk_usage(directory).free < _LEAST_FREE_BYTES
    return False


@contextmanager
def explained_writes(place: str, remedy: str, when_full: str) -> Iterator[None]:
    """Turn an OSError of the body into a SqueezeError.

    Args:
        place: what is written, for the message.
        remedy: what to do where the place cannot be written to.
        when_full: what to do where its disk is full.

    Raises:
        SqueezeError: the place cannot be written to, or its disk is full.
    """
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise SqueezeError(f"the disk that holds {place} is full; {when_full}") from error
        raise SqueezeError(f"{place} cannot be written ({error.strerror or error}); {remedy}") from error
