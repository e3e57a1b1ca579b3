"""The XML of the DDI corpus and of the corpora of protein interactions: sentences, entities, and all pairs."""

from pathlib import Path

import pytest

pytest.importorskip("lxml")

from biosqueeze.data.annotations.documents import detect_format, read_documents
from biosqueeze.data.annotations.pair_xml import read_pair_xml
from biosqueeze.errors import SqueezeError

FIRST = """<sentence id="s0" text="Zinc raises copper, not iron and lead.">
  <entity id="e0" charOffset="0-3" type="drug" text="Zinc"/>
  <entity id="e1" charOffset="12-17" type="drug" text="copper"/>
  <entity id="e2" charOffset="24-27;33-36" type="group" text="iron-lead"/>
  <pair id="p0" e1="e0" e2="e1" ddi="true" type="effect"/>
  <pair id="p1" e1="e0" e2="e2" ddi="false"/>
  <pair id="p2" e1="e1" e2="e2" ddi="true"/>
</sentence>"""
SECOND = '<sentence id="s1" text="Nothing."/>'


def ddi(*sentences: str) -> str:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<document id="d">{"".join(sentences)}</document>\n'


def written(folder: Path, text: str) -> Path:
    path = folder / "train.xml"
    path.write_text(text)
    return path


def test_sentences_entities_and_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, ddi(FIRST, SECOND))
    assert detect_format(path) == "pairs"
    first, second = read_documents(path)
    assert first.is_sentence
    assert second.annotations == second.relations == ()
    assert [(each.text, each.type) for each in first.annotations] == [
        ("Zinc", "drug"),
        ("copper", "drug"),
        ("iron and lead", "group"),
    ]
    assert [(each.type, each.head.text, each.tail.text) for each in first.relations] == [
        ("effect", "Zinc", "copper"),
        ("false", "Zinc", "iron and lead"),
    ]
    said = " ".join(capsys.readouterr().err.split())
    assert "1 discontinuous annotations read as one span" in said
    assert "1 interactions without a type left out" in said


def test_corpora_of_protein_interactions(tmp_path: Path) -> None:
    """Their ends are behind the last character, their interactions have no type or direction, some entities no type."""
    text = FIRST.replace("0-3", "0-4").replace("12-17", "12-18").replace("24-27;33-36", "24-28,33-37")
    text = text.replace("ddi=", "interaction=").replace("true", "True").replace(' type="effect"', "")
    text = (
        text.replace(" and lead.", " and lead")
        .replace(' type="drug"', "")
        .replace("iron-lead", "iron lead")
        .replace('text="Zinc"', 'text="zinc"')
        .replace('e1="e0" e2="e1"', 'e1="e1" e2="e0"')
    )
    (document,) = read_documents(written(tmp_path, f"<corpus>{ddi(text).split('?>')[1]}</corpus>"))
    assert [each.text for each in document.annotations] == ["Zinc", "copper", "iron and lead"]
    assert [each.type for each in document.annotations] == ["entity", "entity", "group"]
    assert [each.type for each in document.relations] == ["true", "false", "true"]
    assert [each.head.text for each in document.relations] == ["Zinc", "Zinc", "copper"]


def test_copies_on_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(list(read_documents(written(tmp_path, ddi(SECOND, SECOND))))) == 1
    assert "1 documents; 0 annotations; 1 duplicate documents dropped" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(SqueezeError, match="the document id 's1' is already used"):
        list(read_documents(written(tmp_path, ddi(SECOND, SECOND.replace("Nothing", "Something")))))


def test_the_folder_of_another_task_has_no_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The test split of the DDI corpus has other documents for the task of finding drugs, whose pairs are all false."""
    for name, text in (("relations", FIRST), ("drugs", FIRST.replace("true", "false").replace('"s0"', '"s2"'))):
        (tmp_path / name / "MedLine").mkdir(parents=True)
        written(tmp_path / name / "MedLine", ddi(text))
    assert [len(each.relations) for each in read_pair_xml(tmp_path)] == [0, 2]
    said = " ".join(capsys.readouterr().err.split())
    assert "2 documents; 6 annotations" in said
    assert "3 pairs in drugs left out, because none of them interacts" in said


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('charOffset="0-3"', "", r"train.xml:2 entity e0: no offsets; write charOffset"),
        ('text="Zinc"', 'text="Tin"', r"'Tin' has the offsets 0-4 of s0, but the text there is 'Zinc'"),
        ('id="s0" ', "", "train.xml:2: a sentence without an id or a text"),
        ("</sentence>", "", "train.xml:.: invalid XML"),
    ],
)
def test_damage_is_explained(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(SqueezeError, match=message):
        list(read_documents(written(tmp_path, ddi(FIRST.replace(old, new, 1), SECOND))))


def test_relations_of_a_dropped_copy_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    others = FIRST.replace('ddi="false"', 'ddi="true" type="advise"')
    documents = list(read_pair_xml(written(tmp_path, ddi(f"{FIRST}\n", f"{FIRST}\n", others))))
    assert [len(each.relations) for each in documents] == [2]
    said = " ".join(capsys.readouterr().err.split())
    assert "2 duplicate documents dropped" in said
    assert "1 of the duplicate documents have relations that the first has not" in said
