"""Watch what a command changes on the disk, and fail it at one of these changes."""

import contextlib
import errno
import mmap
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# The position of the path that a system call changes, by the audit event.
_CHANGES = {
    "os.rename": 1,
    "os.link": 1,
    "os.symlink": 1,
    "os.mkdir": 0,
    "os.remove": 0,
    "os.rmdir": 0,
    "os.truncate": 0,
}
REQUEST = "campaign.request"
"""Audit event before a request to the Hub; its argument is the path in the address."""
_NEEDS_ROOM = {"open", "os.rename", "os.link", "os.symlink", "os.mkdir"}

_MUCH = 1 << 30

Fault = Callable[[int, str, int], None]
"""Called before each change with its number (from 1), the audit event, and the process id of the command."""


def kill_before(number: int) -> Fault:
    """Return the fault: SIGKILL before a change; in a subprocess, the command is killed and not the subprocess."""

    def fault(count: int, _event: str, pid: int) -> None:
        if count == number:
            os.kill(pid, signal.SIGKILL)

    return fault


def full_disk_from(number: int) -> Fault:
    """Return the fault: from a change on the disk is full; files can still be removed."""

    def fault(count: int, event: str, _pid: int) -> None:
        if count >= number and event in _NEEDS_ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return fault


def can_mount() -> bool:
    """Return whether this process may mount a disk."""
    return (
        os.geteuid() == 0
        and subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0
    )


@contextlib.contextmanager
def small_disk(folder: Path, room: int) -> Iterator[Callable[[], None]]:
    """Put a directory on a disk of its own with little room; needs root.

    Args:
        folder: its content is kept.
        room: bytes.

    Yields:
        a function that makes room.
    """
    aside = folder.with_name(f"{folder.name}-aside")
    folder.rename(aside)
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_MUCH}", "none", folder], check=True)
    try:
        shutil.copytree(aside, folder, dirs_exist_ok=True, symlinks=True)
        disk = os.statvfs(folder)
        used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize

        def resize(size: int) -> None:
            subprocess.run(["mount", "-o", f"remount,size={size}", folder], check=True)

        resize(used + room)
        yield lambda: resize(_MUCH)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


class Watch:
    """Numbers and logs the changes below a folder, those of forks of this process included."""

    def __init__(self, root: Path, log: Path, fault: Fault | None) -> None:
        self._roots = tuple(f"{root / name}{os.sep}" for name in ("work", "cache", "tmp"))
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.set_inheritable(self._log, True)  # forks that stand for subprocesses keep it
        self._fault = fault
        self._count = mmap.mmap(-1, 8)  # shared with the forks
        self._pid = os.getpid()

    def install(self) -> None:
        """Watch this process until it ends: an audit hook cannot be removed."""
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        path = _changed(event, arguments)
        if path is None or not (event == REQUEST or self._is_watched(path)):
            return
        number = int.from_bytes(self._count[:8], "little") + 1
        self._count[:8] = number.to_bytes(8, "little")
        os.write(self._log, f"{number} {event} {path}\n".encode(errors="replace"))
        if self._fault is not None:
            self._fault(number, event, self._pid)

    def _is_watched(self, path: str) -> bool:
        return os.path.join(self._roots[0], path).startswith(self._roots)  # noqa: PTH118


def _changed(event: str, arguments: tuple[Any, ...]) -> str | None:
    """Return the path that an audit event changes, or None."""
    if event == "open":
        path = arguments[0] if arguments[2] & _WRITING else None
    elif event == REQUEST:
        path = arguments[0]
    elif event in _CHANGES:
        path = arguments[_CHANGES[event]]
    else:
        return None
    return os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else None
