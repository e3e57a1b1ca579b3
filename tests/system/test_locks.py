"""Locks: held by another process, and in places that take no files."""

from pathlib import Path

import pytest
from filelock import FileLock

from biosqueeze.system.locks import exclusive_lock


class HeldError(Exception):
    pass


def refuse() -> None:
    raise HeldError


def test_a_held_lock_is_refused(tmp_path: Path) -> None:
    with FileLock(tmp_path / "lock"), pytest.raises(HeldError), exclusive_lock(tmp_path / "lock", refuse):
        pass


def test_a_place_without_files_is_no_held_lock() -> None:
    with pytest.raises(OSError, match="No such file"), exclusive_lock(Path("/proc/biosqueeze.lock"), refuse):
        pass
