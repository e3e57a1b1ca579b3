"""The XML of the DDI corpus and of the corpora of protein interactions: sentences, entities, and all pairs."""

from pathlib import Path

import pytest

pytest.importorskip("lxml")

from biosqueeze.data.annotations.documents import detect_format, read_documents
from biosqueeze.errors import SqueezeError

FIRST = """<sentence id="s0" text="Zinc raises copper, not iron and lead.">
  <entity id="e0" charOffset="0-3" type="drug" text="Zinc"/>
  <entity id="e1" charOffset="12-17" type="drug" text="copper"/>
  <entity id="e2" charOffset="24-27;33-36" type="group" text="iron lead"/>
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
        ("true", "copper", "iron and lead"),
    ]
    assert "1 discontinuous annotations read as one span" in " ".join(capsys.readouterr().err.split())


def test_ends_behind_the_last_character(tmp_path: Path) -> None:
    """Some conversions of the corpora of protein interactions count so; their pairs have no type."""
    text = FIRST.replace("0-3", "0-4").replace("12-17", "12-18").replace("24-27;33-36", "24-28,33-37")
    text = text.replace("ddi=", "interaction=").replace("true", "True").replace(' type="effect"', "")
    (document,) = read_documents(written(tmp_path, f"<corpus>{ddi(text).split('?>')[1]}</corpus>"))
    assert [each.text for each in document.annotations] == ["Zinc", "copper", "iron and lead"]
    assert [each.type for each in document.relations] == ["true", "false", "true"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('charOffset="0-3"', "", r"train.xml:2 entity e0: no type, or no offsets; write charOffset"),
        ('text="Zinc"', 'text="Tin"', r"'Tin' has the offsets 0-4 of s0, but the text there is 'Zinc'"),
        ('id="s0" ', "", "train.xml:2: a sentence without an id or a text"),
        ("</sentence>", "", "train.xml:.: invalid XML"),
    ],
)
def test_damage_is_explained(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(SqueezeError, match=message):
        list(read_documents(written(tmp_path, ddi(FIRST.replace(old, new, 1), SECOND))))
