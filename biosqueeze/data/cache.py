"""A disk cache of results that are expensive to compute: folders that are complete or absent, built by one process."""

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from biosqueeze.errors import SqueezeError
from biosqueeze.progress import note
from biosqueeze.system.locks import exclusive_lock
from biosqueeze.system.os_errors import explained_writes

VARIABLE = "BIOSQUEEZE_CACHE"
Loaded = TypeVar("Loaded")


_temporary: ContextVar[Path | None] = ContextVar("temporary cache", default=None)


@contextmanager
def temporary_cache() -> Iterator[None]:
    """Have an empty cache inside the block, which is deleted at its end."""
    with TemporaryDirectory() as folder:
        token = _temporary.set(Path(folder))
        try:
            yield
        finally:
            _temporary.reset(token)


def is_temporary() -> bool:
    """Return whether the cache is that of a `temporary_cache`."""
    return _temporary.get() is not None


def cache_folder() -> Path:
    """Return that of `temporary_cache`, $BIOSQUEEZE_CACHE, $XDG_CACHE_HOME/biosqueeze or ~/.cache/biosqueeze."""
    if temporary := _temporary.get():
        return temporary
    if folder := os.environ.get(VARIABLE):
        return Path(folder).expanduser().absolute()
    default = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(default).expanduser().absolute() / "biosqueeze"


def load_or_build(
    folder: Path, load: Callable[[Path], Loaded | None], build: Callable[[Path], None], what: str
) -> tuple[Loaded, bool]:
    """Load a folder of the cache; build it first if it is missing or damaged.

    If another process is building it, wait for that.

    Args:
        folder: its name is the key of its content.
        load: reads the folder; returns None if it is missing or incomplete.
        build: fills an empty folder.
        what: such as "corpus", for messages.

    Returns:
        the result of `load`, and whether the folder was built now.

    Raises:
        SqueezeError: the cache cannot be written, or its disk is full.
    """
    loaded = load(folder)
    if loaded is not None:
        return loaded, False
    writes = explained_writes(
        f"the cache {folder.parent}",
        remedy=f"set {VARIABLE} to a directory of yours",
        when_full=f"free some space, or set {VARIABLE} to a directory with more",
    )
    with writes:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(folder, what) as locked:
            loaded = load(folder)
            if loaded is not None:
                return loaded, False
            if folder.exists():
                note(f"the prepared {what} in {folder} is damaged; it is prepared again")
            if locked:
                for abandoned in folder.parent.glob(f"{folder.name}.*.partial"):
                    shutil.rmtree(abandoned)
            _build(folder, load, build)
        loaded = load(folder)
    if loaded is None:
        raise SqueezeError(f"the prepared {what} in {folder} cannot be read back; set {VARIABLE} to another disk")
    return loaded, True


def _build(folder: Path, load: Callable[[Path], Loaded | None], build: Callable[[Path], None]) -> None:
    """Fill a folder under a temporary name, and rename it when it is complete."""
    unfinished = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:8]}.partial")
    unfinished.mkdir()
    try:
        build(unfinished)
        if load(folder) is None:
            shutil.rmtree(folder, ignore_errors=True)
            unfinished.rename(folder)
    except OSError:
        # Without locks another process may have built the folder in the meantime; its result is equivalent.
        if load(folder) is None:
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def exclusive(folder: Path, what: str) -> AbstractContextManager[bool]:
    """Lock a folder of the cache, after waiting for the process that holds the lock; False if there are no locks.

    Args:
        folder: the lock file has its name and the suffix .lock.
        what: such as "corpus", for the log line before waiting.
    """

    def log_wait() -> None:
        note(f"another biosqueeze is preparing this {what} right now; waiting for it")

    return exclusive_lock(folder.with_name(f"{folder.name}.lock"), log_wait)
