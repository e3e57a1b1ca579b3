"""Locks between processes, so that no two of them write the same files."""

import errno
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

    Raises:
        OSError: the file cannot be made.
    """
    from filelock import FileLock, Timeout  # imports asyncio, 70 ms

    lock = FileLock(file)
    try:
        try:
            lock.acquire(blocking=False)
        except Timeout:
            if file.parent.is_dir() and not file.exists():
                file.touch()  # an error where no file can be made, as in /proc: filelock takes that for a held lock
            when_held()
            lock.acquire()
    except NotImplementedError:
        yield False
        return
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
