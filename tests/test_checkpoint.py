"""Checkpoints are found by name, and what is not a checkpoint is explained."""

import shutil
from pathlib import Path

import pytest

from biosqueeze.checkpoint import open_checkpoint, write_result
from biosqueeze.errors import SqueezeError


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("./nowhere", "there is no directory"),
        ("demo:berta", "demo:minilm"),
        ("some-org/never-published-model", "neither a directory here nor a model"),
    ],
)
def test_missing_checkpoint_is_explained(name: str, says: str) -> None:
    with pytest.raises(SqueezeError, match=says):
        open_checkpoint(name)


def test_incomplete_directories_are_explained(pico_bert: Path, tmp_path: Path) -> None:
    with pytest.raises(SqueezeError, match=r"no config\.json"):
        open_checkpoint(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(SqueezeError, match="not valid JSON"):
        open_checkpoint(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SqueezeError, match="no weights"):
        open_checkpoint(str(tmp_path))
    with pytest.raises(SqueezeError, match="is a file"):
        open_checkpoint(str(pico_bert / "config.json"))


def test_results_are_not_written_to_the_hub_cache(pico_bert: Path, tmp_path: Path) -> None:
    cached = tmp_path / "snapshots" / "abc"
    shutil.copytree(pico_bert, cached)
    assert write_result(open_checkpoint(str(cached)), "bench", {}) is None
    assert not (cached / "results").exists()


def test_empty_name_is_refused() -> None:
    with pytest.raises(SqueezeError, match="is empty"):
        open_checkpoint("")
