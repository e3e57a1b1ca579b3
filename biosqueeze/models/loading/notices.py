"""Notes and warnings about a checkpoint that are printed once, however often it is opened. Torch-free."""

from functools import cache
from pathlib import Path

from biosqueeze.progress import note, warn


@cache
def note_once(path: Path, message: str) -> None:
    """Print a note about the checkpoint in a directory, the first time only."""
    del path  # part of the cache key: distinguishes checkpoints of the same name
    note(message)


def warn_once(path: Path, message: str) -> None:
    """Print a warning about the checkpoint in a directory, the first time only."""
    _warn_once(path.resolve(), message)


@cache
def _warn_once(path: Path, message: str) -> None:
    del path
    warn(message)
