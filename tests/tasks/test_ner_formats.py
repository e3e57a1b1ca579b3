"""Entities as brat, spaCy and doccano write them, and tags as numbers."""

import json
from pathlib import Path
from typing import Any

import pytest

from biosqueeze.errors import SqueezeError
from biosqueeze.tasks import open_task
from biosqueeze.tasks.classification import Kind as Classification
from biosqueeze.tasks.sniffing import guess
from tests.cli.run import Shell

TEXT = "Zinc in acute gout. Fine."
TAGS = [("B-Chemical", "O", "B-Disease", "I-Disease", "O"), ("O", "O")]


def tags_of(folder: Path) -> list[tuple[str, ...]]:
    return [tuple(sentence.tags) for sentence in open_task("ner").read(str(folder), ("train",)).splits["train"]]


def write_brat(folder: Path, annotations: str, name: str = "doc1", suffix: str = ".ann") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.txt").write_text(TEXT)
    (folder / f"{name}{suffix}").write_text(annotations)


BRAT = (
    "T1\tChemical 0 4\tZinc\nT2\tDisease 8 18\tacute gout\nR1\tTreats Arg1:T1 Arg2:T2\n#1\tAnnotatorNotes T1\tcheck\n"
)


def test_brat_in_folders_of_a_split(tmp_path: Path) -> None:
    """As in the DDI corpus: documents of two folders may have one name."""
    for folder in ("Train/MedLine", "Train/DrugBank"):
        write_brat(tmp_path / folder, BRAT)
    assert open_task("ner").splits(str(tmp_path)) == ("train",)
    assert tags_of(tmp_path) == TAGS * 2


@pytest.mark.parametrize("folder", ["train", "dev"])
def test_brat(tmp_path: Path, folder: str, capfd: pytest.CaptureFixture[str]) -> None:
    write_brat(tmp_path / "train", BRAT)
    write_brat(tmp_path / folder, BRAT)
    assert tags_of(tmp_path) == TAGS
    assert guess(str(tmp_path), open_task("ner").formulation).kind == "ner"
    assert open_task("ner").splits(str(tmp_path)) == (("train",) if folder == "train" else ("train", "dev"))
    assert "1 events, attributes and notes skipped; 1 relations" in capfd.readouterr().err


def test_entities_of_a_shared_task(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The .a1 has entities, the .a2 others, events with their triggers, and relations; a test split may have no .a2."""
    *entity_lines, relation, _ = BRAT.splitlines()
    entities = "\n".join(entity_lines)
    write_brat(tmp_path / "training", entities, suffix=".a1")
    write_brat(tmp_path / "training", entities, name="doc2", suffix=".a1")
    write_brat(tmp_path / "training", f"*\tEquiv T1 T2\nT3\tCure 5 7\tin\n{relation}\nE1\tCure:T3\n", suffix=".a2")
    write_brat(tmp_path / "training", "T4\tGrade 20 24\tFine\n", name="doc2", suffix=".a2")
    write_brat(tmp_path / "test", entities, suffix=".a1")
    (tmp_path / "test" / "doc1.txt").write_text(TEXT.replace(" in ", " vs "))
    assert tags_of(tmp_path) == [*TAGS, TAGS[0], ("B-Grade", "O")]
    assert open_task("ner").splits(str(tmp_path)) == ("train", "test")
    counts = "2 documents; 5 annotations; 2 events, attributes and notes skipped; 1 triggers of events skipped"
    said = " ".join(capfd.readouterr().err.split())
    assert f"{counts}; 1 relations" in said
    assert "1 documents; 2 annotations; 1 documents without an .a2" in said
    pairs = open_task("relation").read(str(tmp_path), ("train",)).splits["train"]
    assert [each.gold for each in pairs] == ["Treats", "no-relation"]


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("counts_all", [True, False])
def test_brat_with_line_ends_of_windows(tmp_path: Path, ends: str, mark: str, counts_all: bool) -> None:
    folder = tmp_path / "train"
    folder.mkdir()
    written = f"{mark}A title here{ends}Zinc in gout.{ends}"
    (folder / "doc1.txt").write_bytes(written.encode())
    start = (written if counts_all else "A title here\nZinc in gout.\n").index("Zinc")
    (folder / "doc1.ann").write_text(f"T1\tChemical {start} {start + 4}\tZinc\n")
    assert sum(tags.count("B-Chemical") for tags in tags_of(tmp_path)) == 1


def test_brat_in_several_pieces(tmp_path: Path) -> None:
    write_brat(tmp_path / "train", "T1\tDisease 0 4;14 18\tZinc gout\n")
    assert tags_of(tmp_path)[0] == ("B-Disease", "I-Disease", "I-Disease", "I-Disease", "O")


def test_pieces_count_both_characters_of_a_line_end(tmp_path: Path) -> None:
    write_brat(tmp_path / "train", "T1\tGene 19 23;24 28\twith TP53\n")
    (tmp_path / "train" / "doc1.txt").write_bytes(b"The gene is here.\r\nwith TP53\r\n")
    assert ("B-Gene", "I-Gene") in tags_of(tmp_path)


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ("T1 Chemical 0 4 Zinc\n", "not an annotation of brat"),
        ("T1\tChemical 0 4\tIron\n", "the text there is 'Zinc'"),
        ("T1\tDisease 1 5;14 18\tZinc gout\n", "the texts there are 'inc ', 'gout'"),
    ],
)
def test_damaged_brat(tmp_path: Path, annotations: str, message: str) -> None:
    write_brat(tmp_path / "train", annotations)
    with pytest.raises(SqueezeError, match=message):
        tags_of(tmp_path)


def test_brat_without_text(tmp_path: Path) -> None:
    write_brat(tmp_path / "train", BRAT)
    (tmp_path / "train" / "doc1.txt").unlink()
    with pytest.raises(SqueezeError, match=r"no doc1\.txt beside it"):
        tags_of(tmp_path)


def test_a_text_of_brat_without_annotations_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_brat(tmp_path / "train", BRAT)
    write_brat(tmp_path / "train", "", name="doc2")
    (tmp_path / "train" / "doc2.ann").unlink()
    tags_of(tmp_path)
    assert "1 documents; 2 annotations; 1 texts without an .ann or .a1 skipped" in capsys.readouterr().err


SPANS: dict[str, list[Any]] = {
    "spacy": [[TEXT, {"entities": [[0, 4, "Chemical"], [8, 18, "Disease"]]}]],
    "doccano": [{"id": 1, "text": TEXT, "label": [[0, 4, "Chemical"], [8, 18, "Disease"]]}],
    "doccano labels": [{"text": TEXT, "labels": [[0, 4, "Chemical"], [8, 18, "Disease"]]}],
    "doccano relations": [
        {
            "text": TEXT,
            "entities": [
                {"id": 1, "label": "Chemical", "start_offset": 0, "end_offset": 4},
                {"id": 2, "label": "Disease", "start_offset": 8, "end_offset": 18},
            ],
            "relations": [],
        }
    ],
    "spans": [
        {
            "text": TEXT,
            "spans": [{"start": 0, "end": 4, "label": "Chemical"}, {"start": 8, "end": 18, "label": "Disease"}],
        }
    ],
}


@pytest.mark.parametrize("layout", SPANS)
@pytest.mark.parametrize("name", ["train.jsonl", "train.json"])
def test_spans(tmp_path: Path, layout: str, name: str) -> None:
    without = json.loads(json.dumps(SPANS[layout][0]).replace(TEXT, "No names at all."))
    if isinstance(without, list):
        without[1]["entities"] = []
    else:
        without |= {key: [] for key in ("label", "labels", "entities", "spans") if key in without}
    records = [without, *SPANS[layout]]
    text = "\n".join(map(json.dumps, records)) if name.endswith("l") else json.dumps(records)
    (tmp_path / name).write_text(text)
    assert tags_of(tmp_path)[1:] == TAGS


def test_labels_of_a_classification_are_no_spans(tmp_path: Path) -> None:
    records = [{"text": "Good.", "label": ["pos"]}, {"text": "Bad.", "label": ["neg"]}]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, records)))
    data = Classification().read(str(tmp_path), ("train",))
    assert set(data.labels) == {"neg", "pos"}


NUMBERS = {"tokens": ["Zinc", "in", "gout"], "ner_tags": [1, 0, 2]}


@pytest.mark.parametrize("file", ["labels.txt", "dataset_infos.json"])
def test_numbered_tags(tmp_path: Path, file: str) -> None:
    names = ["O", "B-Chemical", "B-Disease"]
    features = {"features": {"ner_tags": {"feature": {"names": names, "_type": "ClassLabel"}, "_type": "Sequence"}}}
    (tmp_path / file).write_text("\n".join(names) if file == "labels.txt" else json.dumps(features))
    (tmp_path / "train.jsonl").write_text(json.dumps(NUMBERS))
    assert tags_of(tmp_path) == [("B-Chemical", "O", "B-Disease")]


def test_numbered_tags_without_names(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(json.dumps(NUMBERS))
    with pytest.raises(SqueezeError, match=r"labels\.txt"):
        tags_of(tmp_path)
    (tmp_path / "labels.txt").write_text("O\nB-Chemical\n")
    with pytest.raises(SqueezeError, match="tag 2 has no name"):
        tags_of(tmp_path)


def test_semicolons_of_a_spreadsheet(tmp_path: Path, shell: Shell) -> None:
    rows = ["text;label", '"a; quoted, text";pos', "plain;neg"]
    (tmp_path / "train.csv").write_text("\n".join(rows))
    examples = Classification().read(str(tmp_path), ("train",)).splits["train"]
    assert [example.texts for example in examples] == [("a; quoted, text",), ("plain",)]
    inspected = shell("tasks inspect", tmp_path, "--json")
    assert json.loads(inspected.out)["kind"] == "classification", inspected.err
