"""Which text is drawn to calibrate on."""

import json
from random import Random
from types import SimpleNamespace

import pytest
import torch

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.data.output_types import TOKENS
from biosqueeze.importance import calibration
from biosqueeze.importance.calibration import read_calibration
from biosqueeze.importance.sources import CalibrationRequest, open_request
from biosqueeze.models.loading.load import load_model, load_tokenizer
from tests import pico

LINES = list(dict.fromkeys(pico.sentences(40)))


@pytest.fixture
def drawn(pico_bert, tmp_path, monkeypatch):
    """Calibrate on this many tokens of a text, 10 lines of which are drawn from at a time; return the batches."""
    monkeypatch.setattr(calibration, "_SAMPLED_LINES", 10)
    (tmp_path / "text.txt").write_text("\n".join(LINES) + "\n")
    checkpoint = open_checkpoint(str(pico_bert))

    def read(tokens):
        request = CalibrationRequest(
            source=str(tmp_path / "text.txt"),
            task=None,
            output_type=TOKENS,
            field="text",
            tokens=tokens,
            max_length=128,
            seed=0,
        )
        return read_calibration(request, checkpoint, load_model(checkpoint).model, load_tokenizer(checkpoint))

    return read


def test_a_long_text_is_read_until_it_has_the_tokens(drawn, capsys):
    everything = sum(len(ids) for ids in pico.shared_tokenizer()(LINES)["input_ids"])
    assert everything - 50 <= drawn(everything - 50).tokens <= everything
    assert "to calibrate on" not in capsys.readouterr().err
    assert drawn(everything + 1).tokens == everything
    assert f"has {everything:,} tokens to calibrate on" in capsys.readouterr().err


def test_tokens_that_are_masked_count_as_what_they_were(drawn):
    ids = [number for ids in pico.shared_tokenizer()(LINES)["input_ids"] for number in ids]
    read, mask = drawn(len(ids)), pico.shared_tokenizer().mask_token_id
    assert any((batch["input_ids"] == mask).any() for batch in read.batches)
    assert read.token_counts(len(pico.shared_tokenizer())).tolist() == [
        ids.count(number) for number in range(len(pico.shared_tokenizer()))
    ]


def test_the_loss_is_that_of_the_masked_tokens(drawn, pico_bert):
    read, model = drawn(300), load_model(open_checkpoint(str(pico_bert))).model
    for batch in read.batches:
        with torch.no_grad():
            likely = read.run(model, batch).double().log_softmax(-1)
        places = batch["labels"].ge(0).nonzero().tolist()
        naive = -sum(likely[row, at, batch["labels"][row, at]].item() for row, at in places)
        assert read.loss(model, batch).item() == pytest.approx(naive, rel=1e-5)
    assert places


def test_texts_of_another_task_with_several_labels(pico_ner, tmp_path):
    records = [{"text": text, "labels": ["a", "b"][: number % 3]} for number, text in enumerate(LINES)]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, records)))
    checkpoint = open_checkpoint(str(pico_ner))
    options = SimpleNamespace(calibration=str(tmp_path), field="text", calibration_tokens=50, seed=0)
    request = open_request(options, checkpoint, "--importance wanda", 128)
    assert request.text_of == "classification"
    read = read_calibration(request, checkpoint, load_model(checkpoint).model, load_tokenizer(checkpoint))
    assert read.tokens >= 50 and read.loss_sum is None


def test_the_beginning_is_drawn_from_first(monkeypatch):
    monkeypatch.setattr(calibration, "_SAMPLED_LINES", 10)
    first = LINES[:10]
    Random(0).shuffle(first)
    assert [line for line, _ in zip(calibration._drawn(iter(LINES), 0), first, strict=False)] == first
