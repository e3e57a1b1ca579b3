"""Records of Label Studio and BigBio are texts with entities."""

import json
from pathlib import Path
from typing import Any

import pytest

from biosqueeze.errors import SqueezeError
from biosqueeze.tasks.sniffing import guess
from tests.tasks.test_unusual_layouts import Formulation, both, lay_out, read

GENE = {"value": {"start": 0, "end": 4, "text": "TP53", "labels": ["Gene"]}, "type": "labels", "from_name": "ner"}
CHOICE = {"value": {"choices": ["good"]}, "type": "choices"}
TAGS = ("B-Gene", "O", "O")
PASSAGES = [
    {"id": "1", "type": "title", "text": ["TP53 of mice."], "offsets": [[0, 13]]},
    {"id": "2", "type": "abstract", "text": ["Breast and ovarian cancer."], "offsets": [[14, 40]]},
]


def task(*annotations: Any, **more: Any) -> dict[str, Any]:
    return {"id": 7, "data": {"text": "TP53 of mice"}, "annotations": list(annotations), **more}


def entity(kind: str, *parts: tuple[str, int, int]) -> dict[str, Any]:
    offsets = [[start, end] for _, start, end in parts]
    return {"id": "e", "type": kind, "text": [text for text, _, _ in parts], "offsets": offsets, "normalized": []}


def document(*entities: dict[str, Any], passages: Any = PASSAGES) -> dict[str, Any]:
    return {"id": "0", "document_id": "9", "passages": passages, "entities": list(entities), "relations": []}


ENTITIES = (entity("Gene", ("TP53", 0, 4)), entity("Disease", ("Breast", 14, 20), ("cancer", 33, 39)))


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_tasks_of_label_studio(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cancelled = {"result": [], "was_cancelled": True}
    tasks = [task({"result": [GENE, CHOICE]}), task(cancelled), task(cancelled, {"result": []}, {"result": [GENE]})]
    lay_out(tmp_path, both(suffix, json.dumps(tasks) if suffix == ".json" else tasks))
    lay_out(tmp_path, {f"test{suffix}": json.dumps([task({"result": [GENE]})])} if suffix == ".json" else {})
    assert guess(str(tmp_path), Formulation()).kind == "ner"
    assert [sentence.tags for sentence in read("ner", tmp_path).splits["train"]] == [TAGS, ("O", "O", "O")]
    said = " ".join(capsys.readouterr().err.split())
    assert "1 tasks without annotations left out; 1 tasks with several annotations, of which the" in said
    assert "test has no tags" not in said


def test_the_ground_truth_is_read_before_the_first(tmp_path: Path) -> None:
    lay_out(tmp_path, both(".jsonl", [task({"result": []}, {"result": [GENE], "ground_truth": True})]))
    assert [sentence.tags for sentence in read("ner", tmp_path).splits["train"]] == [TAGS]


def test_choices_for_texts_are_no_entities(tmp_path: Path) -> None:
    lay_out(tmp_path, both(".jsonl", [task({"result": [CHOICE]}), task({"result": []})]))
    for reading in (lambda: guess(str(tmp_path), Formulation()), lambda: read("ner", tmp_path)):
        with pytest.raises(SqueezeError, match=r"are choices for whole texts, .* --task classification"):
            reading()
    short = [{"id": number, "text": f"mice {number}", "view": view} for number, view in enumerate("xy")]
    lay_out(tmp_path, both(".jsonl", short))
    assert len(read("classification", tmp_path, "label=view").splits["train"]) == 2


def test_tasks_that_nobody_annotated(tmp_path: Path) -> None:
    lay_out(tmp_path, both(".jsonl", [task(), task({"was_cancelled": True})]))
    with pytest.raises(SqueezeError, match="no task has an annotation; export annotated tasks"):
        read("ner", tmp_path)
    two_texts = {"title": "TP53", "abstract": "of mice"}
    lay_out(tmp_path, both(".jsonl", [task({"result": [GENE]}, data=two_texts)]))
    with pytest.raises(SqueezeError, match="needs a text, and has title, abstract; call it text"):
        read("ner", tmp_path)


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        ({"result": 5}, "result of an annotation is '5', a list was expected"),
        (
            {"result": [{"type": "relation", "from_id": "a", "to_id": "b", "labels": 3}]},
            "labels of an annotation is",
        ),
    ],
)
def test_annotations_that_hold_no_list(annotation: dict[str, Any], said: str, tmp_path: Path) -> None:
    lay_out(tmp_path, both(".jsonl", [task(annotation)]))
    with pytest.raises(SqueezeError, match=said):
        read("ner", tmp_path)


def test_short_records_of_label_studio(tmp_path: Path) -> None:
    records = [{"id": 1, "text": "TP53 of mice", "label": [GENE["value"]], "annotation_id": 3}]
    lay_out(tmp_path, both(".jsonl", [*records, {"id": 2, "text": "Mice are fed.", "annotation_id": 4}]))
    assert [sentence.tags for sentence in read("ner", tmp_path).splits["train"]] == [TAGS, ("O",) * 4]


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_documents_of_bigbio(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = [document(*ENTITIES)]
    lay_out(tmp_path, both(suffix, json.dumps(documents) if suffix == ".json" else documents))
    assert guess(str(tmp_path), Formulation()).kind == "ner"
    title, abstract = read("ner", tmp_path).splits["train"]
    assert title.tags == (*TAGS, "O")
    assert abstract.tags == ("B-Disease", "I-Disease", "I-Disease", "I-Disease", "O")
    assert "1 discontinuous entities read as one span" in " ".join(capsys.readouterr().err.split())


def test_documents_of_bigbio_that_datasets_saved(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([document(*ENTITIES)] * 2)
    datasets.DatasetDict({"train": rows, "validation": rows}).save_to_disk(tmp_path)
    assert read("ner", tmp_path).splits["train"][0].tags == (*TAGS, "O")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (document({**ENTITIES[0], "offsets": []}), "is none of BigBio's entities; each has a type, a list of texts"),
        (document(*ENTITIES, passages=[{"text": "TP53"}]), "is none of BigBio's passages"),
        (document(*ENTITIES, passages=[*PASSAGES, PASSAGES[1]]), "the passage at 14 begins before the end of another"),
        (document(entity("Gene", ("TP53", 1, 5))), r"'TP53' is at 0-4"),
        (document({**ENTITIES[0], "type": None}), "is not an entity"),
    ],
)
def test_damaged_documents_of_bigbio(record: Any, message: str, tmp_path: Path) -> None:
    lay_out(tmp_path, both(".jsonl", [record]))
    with pytest.raises(SqueezeError, match=message):
        read("ner", tmp_path)


def test_pairs_of_bigbio(tmp_path: Path) -> None:
    pairs = [{"id": str(n), "text_1": f"study {n}", "text_2": f"cell {n}", "label": f"{n}.5"} for n in range(3)]
    lay_out(tmp_path, both(".jsonl", pairs))
    first = read("similarity", tmp_path).splits["train"][0]
    assert (first.texts, first.gold) == (("study 0", "cell 0"), 0.5)
