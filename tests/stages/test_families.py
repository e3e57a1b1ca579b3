"""Every family as fine-tuned model, as teacher and as student of a BERT with WordPiece, in predictions and in bench.

The other commands have loops over families of their own, which `tests.family_table` names.
"""

import json
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import transformers

from biosqueeze.measuring import worker, worker_pool
from tests import family_table, pico
from tests.cli.run import Shell

QUICK = ("--precision", "fp32", "--steps", "1", "--batch-size", "4", "--max-length", "32")
CLASSES = {
    "mlm": transformers.AutoModelForMaskedLM,
    "ner": transformers.AutoModelForTokenClassification,
    "qa": transformers.AutoModelForQuestionAnswering,
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


@pytest.fixture(scope="module")
def data(root: Path) -> Path:
    folder = root / "data"
    folder.mkdir()
    for seed, split in enumerate(("train", "dev", "test")):
        rows = ["sepsis\tB-Disease", "syndrome\tI-Disease", ""]
        for sentence in pico.sentences(6, seed=seed):
            words = sentence.rstrip(".").split()
            rows += [*(f"{word}\t{'B-Disease' if word.endswith('tis') else 'O'}" for word in words), ""]
        (folder / f"{split}.tsv").write_text("\n".join(rows))
    return folder


@pytest.fixture(scope="module")
def text(root: Path) -> Path:
    path = root / "corpus.txt"
    path.write_text("\n".join(pico.sentences(12, seed=9)))
    return path


@pytest.fixture(scope="module")
def questions(root: Path) -> Path:
    folder = root / "questions"
    folder.mkdir()
    for split in ("train", "dev", "test"):
        asked = {"id": split, "question": "which", "answers": [{"text": "hepatitis", "answer_start": 12}]}
        paragraph = {"context": f"patients in hepatitis {split}.", "qas": [asked]}
        (folder / f"{split}.json").write_text(json.dumps({"data": [{"title": split, "paragraphs": [paragraph]}]}))
    return folder


@pytest.fixture(scope="module")
def small(root: Path) -> Callable[[str, str], Path]:
    """`small("bert", "mlm")` is a checkpoint with two layers."""

    def make(family: str, head: str) -> Path:
        path = root / f"{family}-{head}"
        with mock.patch.object(pico, "LAYERS", 2):
            return path if path.is_dir() else pico.save(family, path, head=head)

    return make


def check_stock(path: Path | str, kind: str) -> None:
    """Stock transformers loads it without missing or unexpected tensors."""
    _, info = CLASSES[kind].from_pretrained(path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]


@pytest.mark.parametrize("family", pico.FAMILIES)
def test_fine_tuned_teacher_of_a_bert(family, small, data, text, shell: Shell) -> None:
    tuned = shell("finetune", small(family, "mlm"), "--data", data, *QUICK, "--out", "teacher")
    assert tuned.code == 0, tuned.err
    check_stock("teacher", "ner")
    pair = ("--teacher", "teacher", "--data", data, "--corpus", text)
    distilled = shell("distill", small("bert", "mlm"), *pair, *QUICK, "--out", "student")
    assert distilled.code == 0, distilled.err
    check_stock("student", "ner")


@pytest.mark.parametrize("family", pico.FAMILIES)
def test_student_of_a_bert(family, small, data, shell: Shell) -> None:
    pair = ("--teacher", small("bert", "token-classification"), "--task", "ner", "--data", data)
    distilled = shell("distill", small(family, "mlm"), *pair, *QUICK, "--out", "student")
    assert distilled.code == 0, distilled.err
    check_stock("student", "ner")


@pytest.mark.parametrize("family", pico.FAMILIES)
def test_teacher_of_its_own_family_on_text(family, small, text, shell: Shell) -> None:
    words = ("--student", "compact", "--teacher", small(family, "mlm"), "--corpus", text)
    distilled = shell("distill", *words, *QUICK, "--out", "student")
    assert distilled.code == 0, distilled.err
    check_stock("student", "mlm")


@pytest.mark.parametrize("family", pico.ANSWER_QUESTIONS)
def test_fine_tuned_on_questions(family, small, questions, shell: Shell) -> None:
    tuned = shell("finetune", small(family, "mlm"), "--data", questions, "--task", "qa", *QUICK, "--out", "qa")
    assert tuned.code == 0, tuned.err
    check_stock("qa", "qa")


class InThisProcess:
    """A measuring process without a process of its own, which would import torch once more."""

    def __init__(self) -> None:
        self.requests: queue.Queue[Any] = queue.Queue()
        self.replies: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        worker.serve(iter(self.requests.get, None), self.replies.put)

    def request(self, request: dict[str, Any]) -> Any:
        self.requests.put(request)
        return self.replies.get(timeout=60)


@contextmanager
def in_this_process(labels: Sequence[str], threads: int) -> Iterator[list[InThisProcess]]:
    del threads
    yield [InThisProcess() for _ in labels]


@pytest.mark.parametrize("family", pico.FAMILIES)
def test_predictions_scores_and_times(family, small, copy_of, data, shell: Shell, monkeypatch) -> None:
    path = copy_of(small(family, "token-classification"))
    scored = shell("evaluate", path, "--data", data, "--task", "ner", "--json")
    assert scored.code == 0 and 0 <= json.loads(scored.out)["metrics"]["f1"] <= 1, scored.err
    predicted = shell("predict", path, "--text", next(pico.sentences(1)), "--task", "ner")
    assert predicted.code == 0 and "entities" in json.loads(predicted.out), predicted.err
    monkeypatch.setattr(worker_pool, "measuring_processes", in_this_process)
    runs = ("--threads", "1", "--rounds", "1", "--seconds", "0", "--warmup", "1")
    measured = shell("bench", path, "--batch-size", "1", "--length", "16", *runs, "--json")
    assert measured.code == 0, measured.err
    assert [row["backend"] for row in json.loads(measured.out)["rows"]] == ["torch"]


def test_the_table_is_that_of_the_tests() -> None:
    assert family_table.page_table() == family_table.table()
    assert "| |" not in family_table.table(), "a family that no test covers"
