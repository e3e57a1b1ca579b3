"""Shallow pico checkpoints, as they are and exported, each made once per session: tracing takes its time per layer."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from unittest import mock

import pytest

from biosqueeze.stages import export
from tests import pico


@pytest.fixture(scope="session")
def shallow(pico_root: Path) -> Callable[[str, str], Path]:
    """`shallow("bert", "token-classification")` is a checkpoint with one layer."""

    @cache
    def make(family: str, head: str) -> Path:
        with mock.patch.object(pico, "LAYERS", 1):
            return pico.save(family, pico_root / f"shallow-{family}-{head}", head=head)

    return make


@pytest.fixture(scope="session")
def exported(pico_root: Path, shallow: Callable[[str, str], Path]) -> Callable[[str, str], Path]:
    """`exported("bert", "token-classification")` is a checkpoint with onnx/model.onnx in it."""

    @cache
    def make(family: str, head: str) -> Path:
        out = pico_root / f"exported-{family}-{head}"
        return export.run(export.Options(checkpoint=str(shallow(family, head)), out=str(out))).path

    return make
