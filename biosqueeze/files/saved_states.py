"""Training states in the directory of an output: folders `state-STEP`, named, found and removed here. Torch-free."""

import shutil
from pathlib import Path

# Written last and removed first: a state that was half written or half removed when the process was killed lacks it.
PROGRESS_FILE = "progress.json"
UNFINISHED_STATE = "saving"
_GLOB = f"state-{'[0-9]' * 8}"


def state_folder(directory: Path, step: int) -> Path:
    """Return the folder of the state after a step."""
    return directory / f"state-{step:08d}"


def is_state_folder(name: str) -> bool:
    """Return whether a folder of that name holds a state, complete or not."""
    return Path(name).match(_GLOB)


def complete_states(directory: Path) -> list[Path]:
    """Return the folders of the complete states, the oldest first."""
    return sorted(file.parent for file in directory.glob(f"{_GLOB}/{PROGRESS_FILE}"))


def has_state(partial: Path) -> bool:
    """Return whether an interrupted training can be resumed: a state of its own, or of its warm start, is saved."""
    return bool(complete_states(partial)) or any(partial.glob(f"*/{_GLOB}/{PROGRESS_FILE}"))


def remove_states(directory: Path, *, keep: Path | None = None) -> None:
    """Remove the states in a directory, complete or not, except the one to keep."""
    for path in directory.glob(f"{_GLOB}*"):
        if path != keep:
            (path / PROGRESS_FILE).unlink(missing_ok=True)
            shutil.rmtree(path)
