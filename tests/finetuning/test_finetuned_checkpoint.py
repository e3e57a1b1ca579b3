"""A fine-tuned checkpoint is used with the length of its training, and only with the head of its task."""

import json
from pathlib import Path

import pytest

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.finetuning.finetuned_checkpoint import check_head, sequence_length, task_of
from biosqueeze.tasks.classification import MultiLabel
from tests import pico
from tests.manifests import write_manifest


@pytest.mark.parametrize(
    ("noted", "asked", "positions", "length"),
    [(None, None, 512, 256), (None, 100, 512, 100), (64, None, 512, 64), (64, 100, 512, 100), (512, None, 128, 128)],
)
def test_length_is_the_given_or_the_trained_one(noted, asked, positions, length, tmp_path: Path):
    path = pico.save("bert", tmp_path / "ner", head="token-classification")
    task = {"name": "ner"} if noted is None else {"name": "ner", "max_length": noted}
    write_manifest(path, task=task)
    assert sequence_length(open_checkpoint(str(path)), asked, positions) == length


def test_a_length_above_the_positions_is_lowered_with_a_note(pico_ner: Path, capsys: pytest.CaptureFixture[str]):
    assert sequence_length(open_checkpoint(str(pico_ner)), 600, 512) == 512
    assert "--max-length 600 is lowered to 512" in capsys.readouterr().err


def test_a_head_of_another_task_is_refused(pico_ner: Path):
    checkpoint = open_checkpoint(str(pico_ner))
    check_head(checkpoint, "token-classification", "ner", "to score")
    with pytest.raises(SqueezeError, match="no trained sequence-classification head, so there is nothing to score"):
        check_head(checkpoint, "sequence-classification", "nli", "to score")


@pytest.mark.parametrize("recorded", [None, {"name": "classification"}])
def test_several_labels_of_a_text_follow_from_the_config(recorded, tmp_path: Path):
    path = pico.save("bert", tmp_path / "model", head="sequence-classification")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "problem_type": "multi_label_classification"}))
    if recorded:
        write_manifest(path, task=recorded)  # without the scheme, as a student's of a teacher without a manifest
    _, task = task_of(open_checkpoint(str(path)), "classification", "to score")
    assert isinstance(task, MultiLabel)
