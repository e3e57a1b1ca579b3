"""Records of Prodigy, whose annotators accept, reject or ignore each."""

from pathlib import Path
from typing import Any

import pytest

from biosqueeze.errors import SqueezeError
from biosqueeze.tasks import Formulation, open_task
from tests.tasks.test_unusual_layouts import both, guess_of, lay_out, read


def prodigy(answer: str, **more: Any) -> dict[str, Any]:
    return {"text": "TP53 of mice", "spans": [{"start": 0, "end": 4, "label": "Gene"}], "answer": answer, **more}


@pytest.mark.parametrize("more", [{}, {"tokens": [{"text": "TP53", "start": 0, "end": 4, "id": 0}]}])
def test_prodigy_examples_that_were_accepted(tmp_path: Path, more: Any, capsys: pytest.CaptureFixture[str]) -> None:
    lay_out(tmp_path, both(".jsonl", [prodigy(answer, **more) for answer in ("reject", "accept", "ignore")]))
    assert [sentence.tags for sentence in read("ner", tmp_path).splits["train"]] == [("B-Gene", "O", "O")]
    assert "2 of 3 records are left out: their answer is reject or ignore" in capsys.readouterr().err
    lay_out(tmp_path, both(".jsonl", [prodigy("reject", **more)]))
    with pytest.raises(SqueezeError, match="every record has the answer reject or ignore; accept some"):
        read("ner", tmp_path)


def test_prodigy_examples_without_spans(tmp_path: Path) -> None:
    bare = {"text": "Mice are fed.", "tokens": [{"text": "Mice", "start": 0, "end": 4, "id": 0}], "answer": "accept"}
    lay_out(tmp_path, both(".jsonl", [prodigy("accept"), bare]))
    assert guess_of(tmp_path) == "ner"
    assert [sentence.tags for sentence in read("ner", tmp_path).splits["train"]] == [("B-Gene", "O", "O"), ("O",) * 4]
    lay_out(tmp_path, both(".jsonl", [{"text": "TP53 of mice", "label": [[0, 4, "Gene"]], "answer": "accept"}]))
    assert read("ner", tmp_path).splits["train"][0].tags == ("B-Gene", "O", "O")


@pytest.mark.parametrize("kind", ["classification", "nli", "relation"])
def test_rejected_labels_are_left_out(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    text, pair = "<< a >> binds [[ b ]]", {"sentence1": "a", "sentence2": "b"}
    answers = ("accept", "reject", "accept", "ignore")
    rows = [
        {**(pair if kind == "nli" else {"text": text}), "label": "xy"[number % 3 == 0], "answer": answer}
        for number, answer in enumerate(answers)
    ]
    lay_out(tmp_path, both(".jsonl", rows))
    assert [each.gold for each in read(kind, tmp_path).splits["train"]] == ["y", "x"]
    assert "2 of 4 records are left out: their answer is reject or ignore" in capsys.readouterr().err


def test_answers_that_are_no_annotators(tmp_path: Path) -> None:
    pair = {"question": "a", "context": "b"}
    lay_out(tmp_path, both(".jsonl", [{**pair, "answer": answer} for answer in ("accept", "reject")]))
    assert [each.gold for each in read("nli", tmp_path).splits["train"]] == ["accept", "reject"]
    rows = [{**pair, "label": "xy"[number], "answer": answer} for number, answer in enumerate(("yes", "reject"))]
    lay_out(tmp_path, both(".jsonl", rows))
    assert len(read("nli", tmp_path).splits["train"]) == 2


def test_rejected_relations_of_documents_are_left_out(tmp_path: Path) -> None:
    labels = ("Gene", "Drug", "Disease")
    entities = [{"id": i, "start_offset": 5 * i, "end_offset": 5 * i + 4, "label": labels[i]} for i in range(3)]

    def related(gene: str, head: int, answer: str) -> dict[str, Any]:
        relation = {"id": 0, "from_id": head, "to_id": head + 1, "type": "binds"}
        return {"text": f"{gene} drug pain", "entities": entities, "relations": [relation], "answer": answer}

    train = [related("TP53", 0, "accept"), related("TP54", 1, "reject")]
    lay_out(tmp_path, {"train.jsonl": train, "test.jsonl": [related("TP55", 0, "accept")]})
    found = open_task("relation", Formulation()).read(str(tmp_path), ("test",)).splits["test"]
    assert [each.gold for each in found] == ["binds"]  # no negative pair of the rejected kind
