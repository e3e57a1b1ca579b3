"""Which unlabelled text is read, and how many examples are sampled for teachers with another vocabulary."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from biosqueeze.data.output_types import SCORE, SINGLE
from biosqueeze.distillation.request import DataSettings
from biosqueeze.distillation.teachers.cross_vocabulary import CrossVocabularyTeachers, TeacherWithTokenizer
from biosqueeze.distillation.training_data.unlabelled import (
    read_unlabelled,
    read_with_teacher_outputs,
    used_examples,
)
from biosqueeze.errors import SqueezeError
from biosqueeze.tasks import open_task, with_pairs
from biosqueeze.tasks.encoding.entities import PairKind
from biosqueeze.training.options import TrainingOptions
from tests import pico

LENGTH = 64


@pytest.mark.parametrize(
    ("options", "ratio", "labelled", "expected"),
    [
        ({"epochs": 2.0}, 1.5, 100, 300),
        ({"epochs": 2.0}, 1.0, 0, sys.maxsize),
        ({"steps": 10, "accumulate": 2}, 1.0, 0, 2 * 10 * 8 * 2),
        ({"steps": 10}, 3.0, 100, 2 * 10 * 8 * 3 // 4),
        ({"schedule": "plateau", "hours": 9.0}, 1.0, 0, 2 * sys.maxsize * 8),
    ],
)
def test_sample_is_what_the_training_uses(
    options: dict[str, Any], ratio: float, labelled: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert used_examples(TrainingOptions(batch_size=8, **options), ratio, labelled) == expected


@pytest.mark.parametrize("labelled_length", [12, 60])
def test_lines_are_joined_where_labelled_texts_are_far_longer(
    labelled_length: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentences = list(pico.sentences(40))
    documents = [sentences[start : start + 4] for start in range(0, 40, 4)]
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join("\n".join(document) for document in documents), encoding="utf-8")
    tokenizer = pico.tokenizer_of("bert")
    models = SimpleNamespace(
        reads_pairs=False,
        reads_plain_text=True,
        tokenizer=tokenizer,
        length=LENGTH,
        output_type=SINGLE,
        labels=("no", "yes"),
    )
    labelled = [{"input_ids": np.ones(labelled_length, dtype=np.int64)}] * 3
    blocks = read_unlabelled(DataSettings(corpus=(str(text),)), models, labelled)
    texts = [
        tokenizer.decode(blocks.features(item)["input_ids"], skip_special_tokens=True) for item in range(len(blocks))
    ]
    plain = [tokenizer.decode(tokenizer(each)["input_ids"], skip_special_tokens=True) for each in sentences]
    if labelled_length == 12:
        assert sorted(texts) == sorted(plain)
        return
    assert "those of a document are joined" in capsys.readouterr().err
    assert sorted(" ".join(texts).split()) == sorted(" ".join(plain).split())
    whole = [" ".join(plain[start : start + 4]) for start in range(0, 40, 4)]
    assert all(any(text in document for document in whole) for text in texts)
    assert len(documents) <= len(blocks) < len(plain)
    assert max(len(blocks.features(item)["input_ids"]) for item in range(len(blocks))) <= LENGTH


def test_pairs_are_consecutive_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["the carcinoma", "is hepatitis", "protein of the cells", "the gene", "left over"]
    text = tmp_path / "text.txt"
    text.write_text("\n".join(lines), encoding="utf-8")
    tokenizer = pico.tokenizer_of("bert")
    models = SimpleNamespace(reads_pairs=True, tokenizer=tokenizer, length=6, output_type=SCORE)
    pairs = read_unlabelled(DataSettings(corpus=(str(text),)), models, [])
    assert len(pairs) == 2
    for item in range(2):
        features = pairs.features(item)
        for bit, line in enumerate(lines[2 * item : 2 * item + 2], 1):
            own = features["input_ids"][features["entities"] == bit]
            assert own.tolist() == tokenizer(line, truncation=True, max_length=6)["input_ids"]
        assert np.isnan(features["targets"])
    assert pairs.lengths_of(np.array([0, 1])).tolist() == [len(pairs.features(item)["input_ids"]) for item in (0, 1)]
    cut = sum(len(tokenizer(line)["input_ids"]) > 6 for line in lines)
    assert f"{cut} of 5 sentences are cut to 6 tokens" in capsys.readouterr().err


def test_a_single_sentence_is_no_pair(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the carcinoma\n", encoding="utf-8")
    settings = DataSettings(corpus=(str(text),))
    models = SimpleNamespace(
        reads_pairs=True,
        reads_plain_text=True,
        tokenizer=pico.tokenizer_of("bert"),
        length=6,
        output_type=SCORE,
        known_task=open_task("similarity"),
    )
    with pytest.raises(SqueezeError, match=r"text\.txt holds a single sentence, .* give more text"):
        read_unlabelled(settings, models, [])
    with pytest.raises(SqueezeError, match="holds a single sentence"):
        read_with_teacher_outputs(SimpleNamespace(), settings, models, TrainingOptions(steps=1), 1)


def test_all_lines_of_a_pipe_are_read() -> None:
    lines = list(pico.sentences(40))
    out, into = os.pipe()
    os.write(into, "\n".join(lines).encode())  # as much as its buffer holds
    os.close(into)
    models = SimpleNamespace(
        reads_pairs=False,
        reads_plain_text=True,
        tokenizer=pico.tokenizer_of("bert"),
        length=LENGTH,
        output_type=SINGLE,
        labels=("no", "yes"),
    )
    labelled = [{"input_ids": np.ones(12, dtype=np.int64)}]
    assert len(read_unlabelled(DataSettings(corpus=(f"/dev/fd/{out}",)), models, labelled)) == 40
    os.close(out)


def test_a_bad_record_is_named_by_its_place(tmp_path: Path) -> None:
    records = tmp_path / "pairs.jsonl"
    records.write_text('{"sentence1": "a", "sentence2": "b"}\n{"sentence1": "a"}\n')
    models = SimpleNamespace(
        reads_pairs=False,
        reads_plain_text=False,
        known_task=open_task("similarity"),
        labels=(),
        length=LENGTH,
        tokenizer=pico.tokenizer_of("bert"),
        output_type=SCORE,
    )
    with pytest.raises(SqueezeError, match=r"pairs\.jsonl:2: no column for 'second'"):
        read_unlabelled(DataSettings(corpus=(str(records),)), models, [])


RELATED = with_pairs(open_task("relation"), (PairKind("Drug", "Disease", True),))


def related(tmp_path: Path, *entities: tuple[int, int, str]) -> tuple[DataSettings, SimpleNamespace]:
    """Return the settings and models for a text with these entities, and a student with another vocabulary."""
    records = tmp_path / "texts.jsonl"
    record = {"text": "aspirin and ibuprofen in hepatitis", "entities": [list(entity) for entity in entities]}
    records.write_text(json.dumps(record), encoding="utf-8")
    models = SimpleNamespace(
        reads_pairs=False,
        reads_plain_text=False,
        known_task=RELATED,
        labels=("no", "yes"),
        length=LENGTH,
        tokenizer=pico.tokenizer_of("roberta"),
        output_type=SINGLE,
    )
    return DataSettings(corpus=(str(records),)), models


def test_each_pair_of_a_text_has_the_logits_of_its_own(tmp_path: Path) -> None:
    settings, models = related(tmp_path, (0, 7, "Drug"), (12, 21, "Drug"), (25, 34, "Disease"))
    tokenizer = pico.tokenizer_of("bert")
    model = pico.model_of("bert", len(tokenizer), "sequence-classification", models.labels)
    teacher = TeacherWithTokenizer(model, tokenizer, LENGTH)
    teachers = CrossVocabularyTeachers([teacher], [1.0], RELATED, models.labels, SimpleNamespace(), "fp32")
    blocks = read_with_teacher_outputs(teachers, settings, models, TrainingOptions(steps=9), 0)
    passage = RELATED.example_from_record(json.loads((tmp_path / "texts.jsonl").read_text()))
    windows = RELATED.encode([passage], models.labels, tokenizer, LENGTH)
    assert len(blocks) == len(windows) == 2
    for number, window in enumerate(windows):
        expected = model(torch.from_numpy(window.features["input_ids"])[None]).logits.detach()
        given = torch.from_numpy(blocks.features(number)["teacher.logits"])
        torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-5)


def test_texts_without_a_pair_of_the_kinds_are_explained(tmp_path: Path) -> None:
    settings, models = related(tmp_path, (0, 7, "Drug"), (12, 21, "Drug"))
    says = (
        r"texts\.jsonl has no record with two entities in a sentence of the kinds .*\(Drug and Disease\); give others"
    )
    with pytest.raises(SqueezeError, match=says):
        read_unlabelled(settings, models, [])
    with pytest.raises(SqueezeError, match=says):
        read_with_teacher_outputs(SimpleNamespace(), settings, models, TrainingOptions(steps=1), 1)
