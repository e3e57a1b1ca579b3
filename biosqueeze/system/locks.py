"""Locks between processes, so that no two of them write the same files."""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


@contextmanager
def exclusive_lock(file: Path, when_held: Callable[[], None]) -> Iterator[bool]:
    """Hold an advisory lock on a file, which is created where it is missing and left in place.

    Args:
        file: the lock file.
        when_held: called where another process holds the lock. If it returns, wait for the lock; to refuse, raise.

    Yields:
        True; False where the file system has no locks, as some network disks.
    """
    handle, locked = _open_locked(file, when_held)
    try:
        yield locked
    finally:
        if locked:
            fcntl.flock(handle, fcntl.LOCK_UN)  # closing it would not, where a forked process has the file open too
        os.close(handle)


def _open_locked(file: Path, when_held: Callable[[], None]) -> tuple[int, bool]:
    """Open a file and lock it; return its descriptor, and whether the file system has locks."""
    while True:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDONLY | os.O_CREAT, 0o666)
        try:
            locked = _lock(handle, when_held)
            if not locked or os.fstat(handle).st_nlink:  # else its last holder removed the file in the meantime
                return handle, locked
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _lock(handle: int, when_held: Callable[[], None]) -> bool:
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            when_held()
            fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    return True
