import gzip
import json

import pytest

from biosqueeze.data.annotations.annotated import Annotation
from biosqueeze.data.annotations.bioc import read_bioc
from biosqueeze.data.annotations.documents import detect_format, read_documents
from biosqueeze.errors import SqueezeError

bioc = pytest.importorskip("bioc")
biocjson = pytest.importorskip("bioc.biocjson")
biocxml = pytest.importorskip("bioc.biocxml")


def _annotation(name, entity_type, text, *locations, **infons):
    annotation = bioc.BioCAnnotation()
    annotation.id, annotation.text = name, text
    annotation.infons = {"type": entity_type, **infons} if entity_type else infons
    annotation.locations = [bioc.BioCLocation(*location) for location in locations]
    return annotation


def _passage(offset, text, *annotations):
    passage = bioc.BioCPassage()
    passage.offset, passage.text, passage.annotations = offset, text, list(annotations)
    return passage


def _document(name, *passages):
    document = bioc.BioCDocument()
    document.id, document.passages = name, list(passages)
    return document


def _collection(*documents):
    collection = bioc.BioCCollection()
    collection.source, collection.date, collection.key = "test", "2020", "none"
    collection.documents = list(documents)
    return collection


def _passage_of_sentences():
    """A passage whose text is in its sentences."""
    passage = bioc.BioCPassage()
    passage.offset = 13
    for offset, text in ((13, "Low zinc."), (24, "It hurts.")):
        sentence = bioc.BioCSentence()
        sentence.offset, sentence.text = offset, text
        passage.sentences.append(sentence)
    passage.sentences[0].annotations.append(_annotation("T9", "Chemical", "zinc", (17, 4)))
    return passage


def _two_documents():
    title = _passage(0, "Zinc in gout", _annotation("T1", "Chemical", "Zinc", (0, 4), identifier="D1"))
    body = _passage(13, "Lung and colon cancer", _annotation("T2", "Disease", "Lung cancer", (13, 4), (28, 6)))
    split = _passage(0, "Zinc in gout", _annotation("T1", "Disease", "gout", (8, 4), MESH="D2"))
    return _collection(_document("7", title, body), _document("8", split, _passage_of_sentences()))


def _write(directory, name, collection):
    dumped = (biocxml if ".xml" in name else biocjson).dumps(collection)
    data = dumped.encode()
    (directory / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    return directory / name


def test_empty_fields_may_be_left_out(tmp_path):
    """As in BioRED's files, whose relations join concepts of a document and have no nodes."""
    annotation = {"id": "0", "infons": {"type": "Chemical"}, "text": "Zinc", "locations": [{"offset": 0, "length": 4}]}
    relation = {"id": "R0", "infons": {"entity1": "D1", "entity2": "D2", "type": "Association"}}
    passage = {"offset": 0, "text": "Zinc in gout", "annotations": [annotation]}
    documents = [{"id": "7", "passages": [passage], "relations": [relation]}]
    (tmp_path / "c.json").write_text(json.dumps({"documents": documents}))
    (document,) = read_bioc(tmp_path / "c.json")
    assert [(each.text, each.type) for each in document.annotations] == [("Zinc", "Chemical")]
    assert document.relations == ()


@pytest.mark.parametrize("name", ["c.xml", "c.json", "c.xml.gz", "c.json.gz"])
def test_passages_and_sentences_are_placed_at_their_offsets(tmp_path, name, capsys):
    path = _write(tmp_path, name, _two_documents())
    assert detect_format(path) == "bioc"
    first, second = read_documents(path)
    assert (first.id, first.text) == ("7", "Zinc in gout\nLung and colon cancer")
    assert first.annotations == (
        Annotation(0, 4, "Chemical", "Zinc", "D1"),
        Annotation(13, 34, "Disease", "Lung and colon cancer"),
    )
    assert second.text == "Zinc in gout\nLow zinc.\n It hurts."
    assert second.annotations == (
        Annotation(8, 12, "Disease", "gout", "D2"),
        Annotation(17, 21, "Chemical", "zinc"),
    )
    assert second.where == f"{path} document 2 (8)"
    log = " ".join(capsys.readouterr().err.split())
    assert "1 discontinuous annotations" in log
    assert "2 documents; 4 annotations" in log


@pytest.mark.parametrize(
    ("text", "second", "fits"),
    [
        ("Lung cancer", 15, True),
        ("cancer Lung", 15, False),
        ("Lung ... cancer", 15, True),
        ("Lung and colon cancer", 15, True),
        ("Lung cancer", 14, False),
        ("Lung cancer", 99, False),
    ],
)
def test_pieces_are_compared_with_the_text(tmp_path, text, second, fits):
    passage = _passage(0, "Lung and colon cancer", _annotation("T2", "Disease", text, (0, 4), (second, 6)))
    path = _write(tmp_path, "c.json", _collection(_document("7", passage)))
    if fits:
        assert next(iter(read_bioc(path))).annotations[0].text == "Lung and colon cancer"
    else:
        with pytest.raises(SqueezeError, match=r"annotation T2: '.*' has the offsets 0-4, .*, but the texts there are"):
            list(read_bioc(path))


def test_documents_under_another_key(tmp_path):
    documents = json.loads(biocjson.dumps(_two_documents()))["documents"]
    (tmp_path / "c.json").write_text(json.dumps({"PubTator3": documents}))
    assert detect_format(tmp_path / "c.json") == "bioc"
    plain = read_bioc(_write(tmp_path, "d.json", _two_documents()))
    assert [document.text for document in read_bioc(tmp_path / "c.json")] == [document.text for document in plain]


def test_xml_with_a_declared_encoding(tmp_path):
    collection = _collection(_document("7", _passage(0, "na\u00efve", _annotation("T", "X", "na\u00efve", (0, 5)))))
    text = biocxml.dumps(collection)
    text = text[text.index("<collection") :]
    (tmp_path / "c.xml").write_bytes(f'<?xml version="1.0" encoding="ISO-8859-1"?>{text}'.encode("latin-1"))
    assert next(read_bioc(tmp_path / "c.xml")).annotations[0].text == "na\u00efve"


def test_annotations_without_a_location_are_counted(tmp_path, capsys):
    path = _write(tmp_path, "c.json", _collection(_document("7", _passage(0, "Zinc", _annotation("T", "X", "Zinc")))))
    assert next(iter(list(read_bioc(path)))).annotations == ()
    assert "1 annotations without a location" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ([], ("is empty: it holds no document",)),
        (
            [_document("7", _passage(0, "Zinc", _annotation("T1", "X", "Zinc", (2, 4))))],
            ("document 1 (7) annotation T1", "2-6", "'Zinc' is at 0-4"),
        ),
        ([_document("7", _passage(0, "Zinc", _annotation("T1", "X", "Iron", (0, 4))))], ("the text there is 'Zinc'",)),
        ([_document("7", _passage(0, "Zinc", _annotation("T1", None, "Zinc", (0, 4))))], ("T1 has no type",)),
        ([_document("7", _passage(0, "Zinc"), _passage(3, "gout"))], ("offset 3", "ends at 4")),
        ([_document("7", _passage(10**9, "gout"))], ("offset 1000000000",)),
        ([_document("7", _passage(0, "a")), _document("7", _passage(0, "b"))], ("document 2 (7)", "already used")),
    ],
)
@pytest.mark.parametrize("name", ["c.xml", "c.json"])
def test_invalid_content_is_reported(tmp_path, name, documents, words):
    with pytest.raises(SqueezeError) as caught:
        list(read_bioc(_write(tmp_path, name, _collection(*documents))))
    for word in (f"{tmp_path / name}", *words):
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("c.xml", "<collection>\n<document>\n</collection>", ("c.xml:3", "invalid XML")),
        ("c.xml", "<collection><document><passage/></document></collection>", ("not BioC",)),
        ("c.xml", "<html/>", ("not BioC: it has no <collection>",)),
        ("c.xml", "<collection/>", ("is empty",)),
        ("c.json", '{"documents": [\n}', ("c.json:2", "invalid JSON")),
        ("c.json", '{"documents": [{"id": "7"}]}', ("document 1", "the field 'passages' is missing")),
        ("c.json", '{"documents": 7}', ('no list "documents"',)),
        ("c.json", b'{"documents": "\xff"}', ("c.json:1", "not UTF-8")),
        ("c.xml.gz", b"\x1f\x8b\x08 damaged", ("the gzip data is damaged",)),
        ("gone/c.xml", None, ("cannot be read", "No such file")),
    ],
)
def test_other_formats_are_reported(tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SqueezeError) as caught:
        list(read_bioc(tmp_path / name))
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("field", ["offset", "length"])
def test_an_offset_that_is_not_an_integer(tmp_path, field):
    collection = json.loads(biocjson.dumps(_two_documents()))
    collection["documents"][0]["passages"][0]["annotations"][0]["locations"][0][field] = "0"
    (tmp_path / "c.json").write_text(json.dumps(collection))
    with pytest.raises(SqueezeError, match="'0' is not an integer"):
        list(read_bioc(tmp_path / "c.json"))


def test_an_exact_copy_is_dropped(tmp_path):
    documents = _two_documents().documents
    assert len(list(read_bioc(_write(tmp_path, "c.xml", _collection(*documents, *documents))))) == 2


def test_files_of_other_formats_are_refused(tmp_path):
    for name, content in (("a.txt", "words\n"), ("a.json", '{"a": [1]}'), ("a.tsv", "x\ty\n")):
        (tmp_path / name).write_text(content)
        assert detect_format(tmp_path / name) is None
        with pytest.raises(SqueezeError, match=r"neither PubTator .* nor BioC"):
            read_documents(tmp_path / name)


def test_a_missing_package_names_the_pip_command(tmp_path, monkeypatch):
    path = _write(tmp_path, "c.json", _two_documents())
    monkeypatch.setitem(__import__("sys").modules, "bioc", None)
    with pytest.raises(SqueezeError, match=r'pip install "biosqueeze\[bioc\]"'):
        list(read_bioc(path))


@pytest.mark.parametrize(
    ("part", "values", "words"),
    [
        ("annotation", {"infons": None}, "the annotation T1 has no type"),
        ("annotation", {"infons": []}, "the annotation T1 has no type"),
        ("annotation", {"text": 5}, "the text '5' is no string"),
        ("annotation", {"locations": None}, "another type than BioC has"),
        ("passage", {"text": ["Zinc"]}, "is no string"),
        ("passage", {"sentences": None}, "another type than BioC has"),
    ],
)
def test_json_with_values_of_other_types(tmp_path, part, values, words):
    document = json.loads(biocjson.dumps(_two_documents()))["documents"][0]
    passage = document["passages"][0]
    (passage if part == "passage" else passage["annotations"][0]).update(values)
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"documents": [document]}))
    with pytest.raises(SqueezeError, match=rf"c\.json document 1.*{words}"):
        list(read_bioc(path))


def test_ids_are_unique_in_a_passage_alone(tmp_path):
    """As BioC.dtd allows where the relations are in the passages."""
    passages = []
    for offset, text, kind in ((0, "Zinc in gout", "eases"), (13, "Iron in lung", "harms")):
        passage = _passage(offset, text)
        for name, start, entity_type in (("T1", 0, "Chemical"), ("T2", 8, "Disease")):
            word = text[start : start + 4]
            passage.annotations.append(_annotation(name, entity_type, word, (offset + start, 4)))
        relation = bioc.BioCRelation()
        relation.id, relation.infons = "R1", {"type": kind}
        relation.nodes = [bioc.BioCNode("T1", "1"), bioc.BioCNode("T2", "2")]
        passage.relations.append(relation)
        passages.append(passage)
    path = tmp_path / "test.xml"
    path.write_text(biocxml.dumps(_collection(_document("7", *passages))))
    (document,) = read_bioc(path)
    linked = [(each.type, each.head.text, each.tail.text) for each in document.relations]
    assert linked == [("eases", "Zinc", "gout"), ("harms", "Iron", "lung")]
