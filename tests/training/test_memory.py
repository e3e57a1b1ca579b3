"""The allocator is set with glibc, and left unchanged without."""

import sys

import pytest

from biosqueeze.training import memory


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_glibc_takes_the_setting() -> None:
    assert memory.keep_freed_memory()


def test_other_systems_are_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.sys, "platform", "darwin")
    assert not memory.keep_freed_memory()
