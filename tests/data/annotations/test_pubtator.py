import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biosqueeze.data.annotations.annotated import Annotation, Document
from biosqueeze.data.annotations.documents import detect_format, read_documents
from biosqueeze.data.annotations.pubtator import parse_pubtator, pubtator_lines, read_pubtator
from biosqueeze.errors import SqueezeError
from tests.error_messages import explained

TWO_DOCUMENTS = (
    "\n11|t|Zinc in gout\n11|a|Low zinc eased gout. So did rest.\n11\t0\t4\tZinc\tChemical\tD1\n"
    "11\t8\t12\tgout\tDisease\tD2|D3\n11\t28\t32\tgout\tDisease\n11\tCID\tD1\tD2\n\n"
    "12|t|A | b\n12|a|\n"
)


def _read(text):
    return list(parse_pubtator(enumerate(text.split("\n"), start=1), "p.txt"))


def test_offsets_count_the_line_end_after_the_title(capsys):
    first, second = _read(TWO_DOCUMENTS)
    assert (first.id, first.where) == ("11", "p.txt:2")
    assert first.text == "Zinc in gout\nLow zinc eased gout. So did rest."
    assert first.annotations == (
        Annotation(0, 4, "Chemical", "Zinc", "D1"),
        Annotation(8, 12, "Disease", "gout", "D2|D3"),
        Annotation(28, 32, "Disease", "gout"),
    )
    assert second == Document("12", "A | b", (), "p.txt:9")
    log = " ".join(capsys.readouterr().err.split())
    assert "p.txt: 2 documents; 3 annotations; 1 relations skipped" in log


@pytest.mark.parametrize("name", ["p.txt", "p.pubtator", "p.txt.gz"])
def test_files_with_other_line_ends(tmp_path, name):
    data = ("\ufeff" + TWO_DOCUMENTS.replace("\n", "\r\n")).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert detect_format(tmp_path / name) == "pubtator"
    read = [(document.id, document.text, document.annotations) for document in read_documents(tmp_path / name)]
    assert read == [(document.id, document.text, document.annotations) for document in _read(TWO_DOCUMENTS)]


def test_relation_of_five_columns_annotation_of_seven():
    text = "1|t|Zinc in gout\n1\tAssociation\tD1\t7124\tNovel\n1\t0\t4\tZinc\tChemical\tD1\tzinc|Zn\n"
    assert _read(text)[0].annotations == (Annotation(0, 4, "Chemical", "Zinc", "D1"),)


def test_white_space_differences_are_tolerated_and_trimmed(capsys):
    (one,) = _read('1|t|A  "b" c d\n1\t1\t8\tA "b"  \tX\n'.replace("\t1\t8", "\t0\t7"))
    assert one.annotations == (Annotation(0, 6, "X", 'A  "b"'),)
    assert "1 annotations that differ from the text in white space" in " ".join(capsys.readouterr().err.split())


def test_an_annotation_across_the_end_of_the_title(capsys):
    (one,) = _read("1|t|a b\n1|a|c d\n1\t2\t5\tb c\tX\n")
    assert one.annotations == (Annotation(2, 5, "X", "b\nc"),)
    assert "white space" not in capsys.readouterr().err
    assert list(pubtator_lines(one))[2] == "1\t2\t5\tb c\tX"


def test_an_exact_copy_is_dropped(capsys):
    assert len(_read(TWO_DOCUMENTS + "\n" + TWO_DOCUMENTS)) == 2
    assert "2 duplicate documents dropped" in " ".join(capsys.readouterr().err.split())


TITLE = "1|t|Zinc in gout\n1|a|Zinc.\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TITLE + "1\t15\t25\tZinc\tX", ("p.txt:3", "15-25", "has 18 characters", "'Zinc' is at 13-17", "correct")),
        (TITLE + "1\t4\t4\tZinc\tX", ("p.txt:3", "4-4")),
        (TITLE + "1\t1\t5\tZinc\tX", ("p.txt:3", "the text there is 'inc '", "'Zinc' is at 0-4")),
        (TITLE + "1\t11\t15\tZinc\tX", ("the text there is 't\\nZi'", "'Zinc' is at 13-17")),
        (TITLE + "1\t0\t4\tIron\tX", ("the text there is 'Zinc'; correct",)),
        (TITLE + "1\t4\t5\t \tX", ("p.txt:3", "' '")),
        (TITLE + "2\t0\t4\tZinc\tX", ("p.txt:3", "unknown document '2'", "2|t|", "the document above is 1")),
        ("1\t0\t4\tZinc\tX\n" + TITLE, ("p.txt:1", "unknown document '1'", "no document above")),
        (TITLE + "\n1|t|Other\n", ("p.txt:4", "the document id '1' is already used at p.txt:1")),
        (TITLE + "1|a|More\n", ("p.txt:3", "a second abstract of 1")),
        ("1|a|Zinc.\n", ("p.txt:1", "no title", "1|t|TITLE")),
        (TITLE + "what is this", ("p.txt:3", "'what is this' is not a line of PubTator", "ID|t|TITLE")),
        (TITLE + "1\t0\t4\tZinc", ("p.txt:3", "4 columns")),
        (TITLE + "1\t0\t4\tZinc\t", ("p.txt:3", "no type")),
        (TITLE + "1\t-1\t4\tZinc\tX", ("p.txt:3", "'-1' and '4' of 'Zinc' are not numbers")),
        (TITLE + "1\tx\t4\tZinc\tX\tD1", ("p.txt:3", "'x' and '4' of 'Zinc' are not numbers")),
        (TITLE + "1\t\u0660\t4\tZinc\tX", ("p.txt:3", "are not numbers")),
        ("\n \n", ("p.txt is empty",)),
    ],
)
def test_errors_name_the_line(text, words):
    explained(lambda: _read(text), *words)


def test_a_file_that_is_not_utf8(tmp_path):
    (tmp_path / "p.txt").write_bytes(b"1|t|na\xefve\n")
    with pytest.raises(SqueezeError, match=r"p\.txt:1: not UTF-8"):
        list(read_pubtator(tmp_path / "p.txt"))


def test_an_entity_without_a_type_can_be_read_again():
    document = Document("1", "Sepsis", (Annotation(0, 6, "", "Sepsis"),))
    (again,) = parse_pubtator(enumerate(pubtator_lines(document), start=1), "p")
    assert again.annotations == (Annotation(0, 6, "Entity", "Sepsis"),)


def test_an_id_with_a_separator_is_refused():
    for name in ("", "a|b", "a\tb", "a b"):
        with pytest.raises(SqueezeError, match="cannot be written as PubTator"):
            list(pubtator_lines(Document(name, "x")))


WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\t"), min_size=1)


@st.composite
def _documents(draw):
    text = "\n".join(draw(st.lists(WORDS.filter(str.strip), min_size=1, max_size=2)))
    places = st.integers(0, len(text))
    spans = [sorted(span) for span in draw(st.lists(st.tuples(places, places), max_size=4))]
    whole = [(a, b) for a, b in spans if text[a:b].strip() and text[a:b] == text[a:b].strip()]
    kinds = draw(st.lists(st.sampled_from(["X", "Y Z"]), min_size=4, max_size=4))
    ids = draw(st.lists(st.sampled_from(["", "D1|D2"]), min_size=4, max_size=4))
    rows = tuple(Annotation(a, b, k, text[a:b], i) for (a, b), k, i in zip(whole, kinds, ids, strict=False))
    return Document("1", text, rows)


@given(_documents())
def test_writing_and_reading_returns_the_same_document(document):
    (again,) = parse_pubtator(enumerate(pubtator_lines(document), start=1), "p")
    assert (again.id, again.text, again.annotations) == (document.id, document.text, document.annotations)


# The entity counts of the corpus; train contains one document twice.
NCBI = {"train": (592, 5134), "develop": (100, 787), "test": (100, 960)}


@pytest.mark.real
@pytest.mark.parametrize("split", NCBI)
def test_ncbi_disease_has_its_published_counts(real_data, split):
    documents = list(read_documents(real_data / "ncbi-disease" / "original-pubtator" / f"NCBI{split}set_corpus.txt"))
    assert (len(documents), sum(len(one.annotations) for one in documents)) == NCBI[split]
    for document in documents:
        lines = enumerate(pubtator_lines(document), start=1)
        assert [parsed.annotations for parsed in parse_pubtator(lines, "again")] == [document.annotations]


@pytest.mark.parametrize(("text", "end", "written"), [("Caf\u00e9", 4, "Cafe\u0301"), ("Cafe\u0301", 5, "Caf\u00e9")])
def test_accents_may_be_encoded_in_another_way(text, end, written, capsys):
    (document,) = _read(f"1|t|{text} helps\n1|a|\n1\t0\t{end}\t{written}\tDrink\n")
    assert document.annotations == (Annotation(0, end, "Drink", text),)
    assert "1 annotations that differ from the text in white space or accents" in " ".join(
        capsys.readouterr().err.split()
    )
