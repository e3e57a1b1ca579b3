"""Notes and warnings about a checkpoint that are printed once, however often it is opened. Torch-free."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

from biosqueeze.progress import note, warn


def note_once(path: Path, message: str) -> None:
    """Print a note about the checkpoint in a directory, the first time only."""
    _print_once(note, path.resolve(), message)


def warn_once(path: Path, message: str) -> None:
    """Print a warning about the checkpoint in a directory, the first time only."""
    _print_once(warn, path.resolve(), message)


@cache
def _print_once(show: Callable[[str], None], path: Path, message: str) -> None:
    del path  # part of the cache key: distinguishes checkpoints of the same name
    show(message)
