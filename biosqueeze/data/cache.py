"""A cache on the disk of what is costly to make: each folder of it is whole or not there, and made by one process."""

import os
import shutil
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

from biosqueeze.errors import SqueezeError
from biosqueeze.locks import exclusive_lock
from biosqueeze.os_errors import explained_writes
from biosqueeze.progress import note

VARIABLE = "BIOSQUEEZE_CACHE"
Kept = TypeVar("Kept")


def cache_folder() -> Path:
    """$BIOSQUEEZE_CACHE, else $XDG_CACHE_HOME/biosqueeze, else ~/.cache/biosqueeze."""
    if named := os.environ.get(VARIABLE):
        return Path(named).expanduser().absolute()
    usual = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(usual).expanduser().absolute() / "biosqueeze"


def load_or_build(
    folder: Path, load: Callable[[Path], Kept | None], make: Callable[[Path], None], what: str
) -> tuple[Kept, bool]:
    """What a folder of the cache holds; where it is not there, or is damaged, it is made.

    A process that finds another one at work waits for it.

    Args:
        folder: its name says what it holds.
        load: reads the folder; None where it is not there or not whole.
        make: fills an empty folder.
        what: "corpus", for messages.

    Returns:
        what `load` gave, and whether it was made just now.

    Raises:
        SqueezeError: the cache cannot be written, or its disk is full.
    """
    kept = load(folder)
    if kept is not None:
        return kept, False
    writes = explained_writes(
        f"the cache {folder.parent}",
        remedy=f"set {VARIABLE} to a directory of yours",
        when_full=f"free some space, or set {VARIABLE} to a directory with more",
    )
    with writes:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(folder, what) as alone:
            kept = load(folder)
            if kept is not None:
                return kept, False
            if folder.exists():
                note(f"the prepared {what} in {folder} is damaged; it is prepared again")
            if alone:
                for left in folder.parent.glob(f"{folder.name}.*.partial"):
                    shutil.rmtree(left)
            _make(folder, load, make)
        kept = load(folder)
    if kept is None:
        raise SqueezeError(f"the prepared {what} in {folder} cannot be read back; set {VARIABLE} to another disk")
    return kept, True


def _make(folder: Path, load: Callable[[Path], Kept | None], make: Callable[[Path], None]) -> None:
    """Fill a folder under another name, and give it its own at the end."""
    unfinished = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:8]}.partial")
    unfinished.mkdir()
    try:
        make(unfinished)
        if load(folder) is None:
            shutil.rmtree(folder, ignore_errors=True)
            unfinished.rename(folder)
    except OSError:
        # Where the system has no locks, another process may have been faster; what it made is as good.
        if load(folder) is None:
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def exclusive(folder: Path, what: str) -> AbstractContextManager[bool]:
    """Lock a folder of the cache, waiting for a process that holds the lock; False where there are no locks.

    Args:
        folder: the lock file has its name and the suffix .lock.
        what: "corpus", for the log line before waiting.
    """

    def wait() -> None:
        note(f"another biosqueeze is preparing this {what} right now; waiting for it")

    return exclusive_lock(folder.with_name(f"{folder.name}.lock"), wait)
