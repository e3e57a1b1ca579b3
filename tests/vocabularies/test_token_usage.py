"""Which tokens of labelled data are counted."""

import json
from pathlib import Path

import pytest

from biosqueeze.manifest import TaskRecord
from biosqueeze.vocabularies.token_usage import CountedTexts
from tests import pico

TEXTS = tuple(dict.fromkeys(pico.sentences(12)))


def counts(folder: Path, task: TaskRecord | None = None) -> list[int]:
    return CountedTexts.of([str(folder)], "text", task).count(pico.shared_tokenizer()).counts.tolist()


@pytest.fixture(scope="module")
def expected() -> list[int]:
    """How often each token occurs in the texts."""
    tokenizer = pico.shared_tokenizer()
    ids = [number for text in TEXTS for number in tokenizer(text, add_special_tokens=False)["input_ids"]]
    return [ids.count(number) for number in range(len(tokenizer))]


def test_texts_with_several_labels(tmp_path: Path, expected: list[int]) -> None:
    records = [{"text": text, "labels": ["a", "b"][: number % 3]} for number, text in enumerate(TEXTS)]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, records)))
    assert counts(tmp_path) == expected


def test_columns_are_those_of_the_fine_tuning(tmp_path: Path, expected: list[int]) -> None:
    rows = [f"{text}\t{'ab'[number % 2]}" for number, text in enumerate(TEXTS)]
    (tmp_path / "train.tsv").write_text("\n".join(["notiz\tgruppe", *rows]))
    formulation = {"column": ["text=notiz", "label=gruppe"]}
    record = TaskRecord(name="classification", data="", labels=("a", "b"), scheme="single", formulation=formulation)
    assert counts(tmp_path, record) == expected


def test_unknown_tokens_count_as_in_a_corpus(tmp_path: Path) -> None:
    text = "the gene \u2603 of patients"
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.tsv").write_text(f"text\tlabel\n{text}\ta\n{text}\tb")
    (tmp_path / "corpus.txt").write_text(f"{text}\n{text}")
    found = counts(tmp_path / "data")
    assert found == counts(tmp_path / "corpus.txt") and found[pico.shared_tokenizer().unk_token_id] == 2


def test_long_texts_are_one_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.dumps({"text": "gene " * 200, "label": "ab"[number % 2]}) for number in range(1200)]
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    counts(tmp_path)
    said = capsys.readouterr().err
    assert said.count("warning: ") == 1 and "1,200 inputs are longer than 128 tokens" in said
    assert "--max-length" not in said
