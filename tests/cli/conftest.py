"""Recipes of pico models."""

from pathlib import Path

import pytest

from tests.cli.recipe_files import write


@pytest.fixture
def recipe(tmp_path: Path, pico_bert: Path) -> Path:
    """A recipe of two steps that shrink."""
    return write(
        tmp_path / "r.toml",
        f'[half]\nstage = "shrink"\ncheckpoint = "{pico_bert}"\nlayers = "2"\n\n[shrink]\nffn = 32\n',
    )
