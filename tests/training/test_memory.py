"""The allocator's setting is taken where there is a glibc, and silently left where there is none."""

import sys

import pytest

from biosqueeze.training import memory


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_glibc_takes_the_setting() -> None:
    assert memory.keep_freed_memory()


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.sys, "platform", "darwin")
    assert not memory.keep_freed_memory()
