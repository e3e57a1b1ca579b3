"""A cache on the disk of what is costly to make: each folder of it is whole or not there, and made by one process."""

import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from biosqueeze.errors import SqueezeError
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
    with _explained(folder):
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
    partial = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:8]}.partial")
    partial.mkdir()
    try:
        make(partial)
        if load(folder) is None:
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
    except OSError:
        # Where the system has no locks, another process may have been faster; what it made is as good.
        if load(folder) is None:
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def exclusive(folder: Path, what: str) -> Iterator[bool]:
    """Wait until no other process makes this folder; False where the system cannot say."""
    try:
        import fcntl
    except ImportError:
        yield False
        return
    with folder.with_name(f"{folder.name}.lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note(f"another biosqueeze is preparing this {what} right now; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:  # a network disk without locks
            yield False
            return
        yield True


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = f"the cache {folder.parent}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise SqueezeError(
                f"the disk that holds {where} is full; free some space, or set {VARIABLE} to a directory with more"
            ) from error
        raise SqueezeError(
            f"{where} cannot be written ({error.strerror or error}); set {VARIABLE} to a directory of yours"
        ) from error
