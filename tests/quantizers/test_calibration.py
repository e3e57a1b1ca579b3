"""The text that an int8 graph is calibrated on and compared with."""

import numpy as np
import pytest

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.quantizers.calibration import CalibrationText, text_batches
from tests import pico
from tests.layouts import edit_json
from tests.manifests import write_manifest


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(pico.sentences(200, seed=3)) + "\n")
    return path


def _batches(checkpoint, source, lines, max_length=128):
    """Batches to calibrate with, and batches to compare on."""
    text = CalibrationText(source=source and str(source), field="text", lines=lines, max_length=max_length, seed=0)
    return text_batches(text, checkpoint)


def test_compared_lines_are_not_calibrated_on(exported, corpus) -> None:
    source = open_checkpoint(str(exported("bert", "token-classification")))
    calibration, compared = _batches(source, corpus, 100, max_length=16)
    rows = [
        {tuple(row[mask == 1]) for batch in batches for row, mask in zip(*batch.values(), strict=True)}
        for batches in (calibration, compared)
    ]
    assert sum(len(batch["input_ids"]) for batch in calibration) == 100
    assert sum(len(batch["input_ids"]) for batch in compared) == 64
    assert not rows[0] & rows[1]
    assert max(batch["input_ids"].shape[1] for batch in calibration) == 16
    again, _ = _batches(source, corpus, 100, max_length=16)
    assert all((a["input_ids"] == b["input_ids"]).all() for a, b in zip(calibration, again, strict=True))


def test_calibration_batches_hold_little_padding(exported, corpus) -> None:
    source = open_checkpoint(str(exported("bert", "token-classification")))
    batches, _ = _batches(source, corpus, 100)
    assert np.mean([batch["attention_mask"].mean() for batch in batches]) > 0.9


def test_small_corpus_is_used_for_both(exported, tmp_path) -> None:
    (tmp_path / "small.txt").write_text("one line.\nand another.\n")
    source = open_checkpoint(str(exported("bert", "token-classification")))
    calibration, compared = _batches(source, tmp_path / "small.txt", 256)
    assert (len(calibration[0]["input_ids"]), len(compared[0]["input_ids"])) == (2, 2)


@pytest.mark.parametrize("task", ["nli", "classification"])
def test_pairs_of_texts_are_calibrated_on_pairs(task, corpus, tmp_path) -> None:
    path = pico.save("bert", tmp_path / "model", "sequence-classification")
    write_manifest(path, task={"name": task, "labels": list(pico.LABELS)})
    for batches in _batches(open_checkpoint(str(path)), corpus, lines=16):
        types = [batch.get("token_type_ids") for batch in batches]
        separators = {int((row == 3).sum()) for batch in batches for row in batch["input_ids"]}
        assert separators == ({2} if task == "nli" else {1})
        assert all(each.any(axis=1).all() for each in types) if task == "nli" else types == [None] * len(batches)


@pytest.mark.parametrize("is_named", [True, False])
def test_a_published_model_of_questions_is_calibrated_on_pairs(is_named, corpus, tmp_path) -> None:
    path = pico.save("bert", tmp_path / "model", "question-answering")
    if not is_named:  # as old checkpoints
        edit_json(path / "config.json", drop=("architectures",))
    calibration, compared = _batches(open_checkpoint(str(path)), corpus, lines=16)
    assert all("token_type_ids" in batch for batch in (*calibration, *compared))
    with pytest.raises(SqueezeError, match="leaves no room beside 3 special tokens; give --max-length 5 or more"):
        _batches(open_checkpoint(str(path)), corpus, lines=16, max_length=4)
