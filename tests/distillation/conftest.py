"""Fixtures of the distillation tests."""

from pathlib import Path

import pytest

from tests import pico


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of 40 sentences."""
    return pico.write_sentences(tmp_path_factory.mktemp("text") / "corpus.txt", 40, seed=3)
