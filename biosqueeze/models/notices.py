"""Things worth saying once about a checkpoint, however often it is opened. Torch-free."""

from functools import cache
from pathlib import Path

from biosqueeze.progress import note


@cache
def note_once(path: Path, message: str) -> None:
    """Say something about the checkpoint in a directory, the first time only."""
    del path  # tells checkpoints of the same name apart
    note(message)
