"""Checkpoints are found by name, and what is not a checkpoint is explained."""

import json
import shutil
from pathlib import Path

import pytest

from biosqueeze.checkpoint import copy_files, open_checkpoint, read_result, write_result
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


def test_result_is_read_back(pico_bert: Path, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(str(shutil.copytree(pico_bert, tmp_path / "copy")))
    assert read_result(checkpoint, "bench") is None
    assert write_result(checkpoint, "bench", {"p50": 1}) == tmp_path / "copy" / "results" / "bench.json"
    assert read_result(checkpoint, "bench") == {"p50": 1}


@pytest.mark.parametrize(
    ("names", "labels"),
    [({"1": "B", "0": "A"}, ("A", "B")), ({"0": "LABEL_0", "1": "LABEL_1"}, ()), (None, ())],
)
def test_placeholders_are_no_labels(names: object, labels: tuple[str, ...], pico_bert: Path, tmp_path: Path) -> None:
    shutil.copytree(pico_bert, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "id2label": names}))
    assert open_checkpoint(str(tmp_path)).labels == labels


@pytest.mark.parametrize("artefacts", [True, False])
def test_copy_leaves_out_manifest_and_results(artefacts: bool, pico_bert: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(pico_bert, source)
    target.mkdir()
    for name in ("onnx", "results", "runs", "elsewhere"):
        (source / name).mkdir()
        (source / name / "file").touch()
    for name in ("README.md", "metrics.jsonl", "report.html", ".lock"):
        (source / name).touch()
    copy_files(open_checkpoint(str(source)), target, artefacts=artefacts)
    expected = {path.name for path in pico_bert.iterdir()} | ({"onnx"} if artefacts else set())
    assert {path.name for path in target.iterdir()} == expected
