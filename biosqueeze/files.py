"""What a directory that is being written needs of the file system: a lock, room, a flush, a rename."""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from biosqueeze.errors import SqueezeError


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
    if out.exists():
        out.rename(former)
    partial.rename(out)
    shutil.rmtree(former, ignore_errors=True)
