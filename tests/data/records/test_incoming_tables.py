"""Tables, tagged words and pipes as input of predictions."""

import gzip
import os
import threading

import pytest

from biosqueeze.data.records.incoming import given_texts, open_input
from biosqueeze.errors import SqueezeError
from tests.data.records.input_files import input_file
from tests.standard_input import pipe_in

CSV = 'ID,text\r\nx1,"one, two"\r\n\r\nx2,"said ""p53"",\r\n\r\ntwice"\r\n'
TSV = 'text\tlabel\na "b\tc\n\nd\te\n'
CONLL = "-DOCSTART-\tO\n\nBRCA1\tNN\tB-Gene\nis\tVB\tO\n\n\n.\t.\tO\n"


def _values(source):
    return [dict(record.values) if record.error is None else record.error for record in source.records]


@pytest.mark.parametrize(
    ("name", "text"), [("r.tsv", "title\ttext\na\tb\n"), ("r.jsonl", '{"title": "a", "text": "b"}')]
)
def test_a_column_that_is_named_and_missing_is_an_error(tmp_path, name, text):
    (error,) = _values(open_input(input_file(tmp_path, name, text), (), ("text=titel",)))
    assert "no column 'titel'; there are title, text" in error and "Did you mean 'title'" in error
    (values,) = _values(open_input(input_file(tmp_path, name, text), ("text=body",), ("text=title", "label=gold")))
    assert values["title"] == "a"


@pytest.mark.parametrize(("name", "text"), [("r.tsv", "a\n"), ("r.jsonl", '{"title": "a", "text": "b"}')])
def test_a_number_that_no_column_has_is_an_error(tmp_path, name, text):
    (error,) = _values(open_input(input_file(tmp_path, name, text), ("text=2",), ("text=2",)))
    assert "no column '2'; there are " in error


def test_the_number_of_the_words_is_no_field_of_sentences(tmp_path):
    source = open_input(input_file(tmp_path, "r.conll", "1 BRCA1 O\n"), ("word=2",), ("word=2",))
    assert _values(source) == [{"id": 1, "tokens": ["BRCA1"]}]


def test_semicolons_are_read_as_in_training(tmp_path):
    source = open_input(input_file(tmp_path, "r.csv", 'id;text\n1;"a; b, c"\n2;d\n'))
    assert [values["text"] for values in _values(source)] == ["a; b, c", "d"]


def test_words_with_carriage_returns_are_explained(tmp_path):
    with pytest.raises(SqueezeError, match="carriage return"):
        list(open_input(input_file(tmp_path, "r.conll", "BRCA1\tB-Gene\rgene\tO\r")).records)


@pytest.mark.parametrize("name", ["r.csv", "r.CSV.gz", "r.txt", "r"])
def test_csv_by_suffix_or_header(tmp_path, name):
    source = open_input(input_file(tmp_path, name, CSV))
    first, second = source.records
    assert (source.format, first.id, second.id) == ("csv", "x1", "x2")
    assert (first.values["text"], second.values["text"]) == ("one, two", 'said "p53",\r\n\r\ntwice')
    assert (first.where, second.where) == (f"{source.name}:2", f"{source.name}:4")


@pytest.mark.parametrize("name", ["r.tsv", "r.tsv.gz", "r.txt", "-"])
def test_tsv_has_the_line_as_id_and_no_quotes(tmp_path, monkeypatch, name):
    pipe_in(monkeypatch, TSV.encode())
    source = open_input(name if name == "-" else input_file(tmp_path, name, TSV))
    assert source.format == "tsv"
    first, second = source.records
    assert (first.id, first.values) == (2, {"text": 'a "b', "label": "c"})
    assert (second.id, second.values) == (4, {"text": "d", "label": "e"})


def test_numbered_columns_mean_no_header(tmp_path):
    path = input_file(tmp_path, "r.tsv", "7\ta text\n8\tmore\n")
    assert _values(open_input(path, ["text=2"])) == [
        {"1": "7", "2": "a text"},
        {"1": "8", "2": "more"},
    ]


@pytest.mark.parametrize("column", [("text=2", "label=1"), ("word=1", "tag=4")])
@pytest.mark.parametrize(("name", "separator"), [("r.tsv", "\t"), ("r.csv", ","), ("r.csv", ";")])
def test_numbers_of_the_fine_tuning_and_a_header(tmp_path, column, name, separator):
    path = input_file(tmp_path, name, "id,text\n7,a text\n".replace(",", separator))
    source = open_input(path, column)
    assert source.has_names
    assert [values["text"] for values in _values(source)] == ["a text"]
    source = open_input(path, ("text=2",), ("text=2",))
    assert not source.has_names
    assert [values["2"] for values in _values(source)] == ["text", "a text"]


def test_first_row_of_texts_is_no_header(tmp_path):
    path = input_file(tmp_path, "r.tsv", f"7\t{'many words ' * 9}\n8\tmore\n")
    with pytest.raises(SqueezeError, match=r"r\.tsv:1: 'many words many word'.* --column text=2"):
        list(open_input(path).records)


def test_bad_rows_have_an_error_and_the_rest_is_read(tmp_path):
    for name, separator in (("r.csv", ","), ("r.tsv", "\t")):
        rows = ("id,text", "1,a", "2,b,c", "3", "4,d")
        first, second, third, last = _values(
            open_input(input_file(tmp_path, name, "\n".join(rows).replace(",", separator)))
        )
        assert (first["text"], last["text"]) == ("a", "d")
        assert f"{name}:3: 3 columns, where line 1 has 2 (id, text); correct this row" in second
        assert f"{name}:4: 1 columns" in third


def test_invalid_bytes_spoil_one_row_only(tmp_path):
    path = tmp_path / "r.csv"
    path.write_bytes(b'id,text\n1,"a\ncaf\xe9"\n2,b\n')
    bad, good = _values(open_input(str(path)))
    assert "r.csv:3: not UTF-8" in bad and good["text"] == "b"
    path.write_bytes(b"id,t\xe9xt\n1,a\n")
    with pytest.raises(SqueezeError, match=r"r\.csv:1: not UTF-8"):
        list(open_input(str(path)).records)


@pytest.mark.parametrize(
    ("content", "message"),
    [('id,text\n1,"open\n2,b\n', r"r\.csv:2: not a row of a \.csv"), ("a,a\n1,2\n", "two columns are called 'a'")],
)
def test_unreadable_csv_is_an_error(tmp_path, content, message):
    with pytest.raises(SqueezeError, match=message):
        list(open_input(input_file(tmp_path, "r.csv", content)).records)


@pytest.mark.parametrize("name", ["r.conll", "r.iob.gz", "r.iob2", "r.tsv", "r.txt", "-"])
def test_tagged_words_without_their_tags(tmp_path, monkeypatch, name):
    pipe_in(monkeypatch, CONLL.encode())
    source = open_input(name if name == "-" else input_file(tmp_path, name, CONLL))
    assert source.format == "conll"
    assert _values(source) == [{"id": 3, "tokens": ["BRCA1", "is"]}, {"id": 7, "tokens": ["."]}]


def test_column_of_the_words(tmp_path):
    path = input_file(tmp_path, "r.conll", "1 BRCA1 O\n2 is O\n\n3\n\n1 it O\n")
    first, bad, last = _values(open_input(path, ["word=2"]))
    assert (first["tokens"], last["tokens"]) == (["BRCA1", "is"], ["it"])
    assert "r.conll:4: 1 columns, where the first row has 3" in bad


def test_numbers_of_the_words_are_no_words(tmp_path):
    rows = "# sent_id = 1\n1\tThe\tDET\n2-3\tdoesn't\t_\n2\tdoes\tAUX\n3\tn't\tPART\n4\tbind\tVERB\n"
    path = input_file(tmp_path, "r.conllu", rows)
    with pytest.raises(SqueezeError, match=r"r\.conllu:2: .* counts from 1 to 4; .* --column word=2"):
        list(open_input(path).records)
    assert _values(open_input(path, ["word=2"]))[0]["tokens"] == ["The", "doesn't", "does", "n't", "bind"]


@pytest.mark.parametrize("name", ["r.conll", "r.tsv"])
def test_name_of_the_column_of_the_words(tmp_path, name):
    path = input_file(tmp_path, name, "Sent\tToken\tTag\n1\tBRCA1\tB-Gene\n1\tis\tO\n\n2\tit\tO\n")
    assert [values["tokens"] for values in _values(open_input(path, ["word=Token"]))] == [["BRCA1", "is"], ["it"]]
    with pytest.raises(SqueezeError, match=r"no column 'Word' in the first row \(Sent, Token, Tag\).*--column word=1"):
        list(open_input(path, ["word=Word"]).records)


def test_rows_with_other_columns_have_an_error(tmp_path):
    path = input_file(tmp_path, "r.conll", "a\tO\n\n## sentence 2\nb\tO\n\nc\tO\n")
    first, bad, last = _values(open_input(path))
    assert (first["tokens"], last["tokens"]) == (["a"], ["c"])
    assert "r.conll:3: 1 columns, where the first row has 2" in bad


@pytest.mark.parametrize(
    ("name", "text"), [("r.csv", "pmid,abstract\n7,a\n"), ("r.jsonl", '{"pmid": "7", "abstract": "a"}\n')]
)
def test_id_that_is_named(tmp_path, name, text):
    (record,) = open_input(input_file(tmp_path, name, text), (), ("id=pmid",)).records
    assert (record.id, record.values) == ("7", {"pmid": "7", "abstract": "a"})
    (error,) = _values(open_input(input_file(tmp_path, name, text), (), ("id=pmdi",)))
    assert "no column 'pmdi'" in error and "Did you mean 'pmid'" in error


def test_line_ends_in_a_field_are_as_in_the_file(tmp_path):
    path = tmp_path / "r.csv"
    path.write_bytes(b'id,text\r\n1,"a\r\nb\nc\r\r\nd"\r\n\r\n2,e')
    assert [values["text"] for values in _values(open_input(str(path)))] == ["a\r\nb\nc\r\r\nd", "e"]


def test_blank_lines_before_the_names(tmp_path):
    source = open_input(input_file(tmp_path, "r.csv", "\n \nid;text\n1;one, two\n"))
    assert [values["text"] for values in _values(source)] == ["one, two"]


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        ('"id","text"\n1,a\n', "csv"),
        ("pmid,Article Title,abstract\n1,a,b\n", "csv"),
        ("pub-date,text\n1,a\n", "csv"),
        ("id, text\n1, a\n", "csv"),
        ("id;text\n1;a\n", "csv"),
        ('"id";"Article Title";"text"\n1;a;b\n', "csv"),
        ("pmid\tArticle Title\tabstract\n1\ta\tb\n", "tsv"),
    ],
)
def test_header_of_a_piped_table(monkeypatch, table, kind):
    pipe_in(monkeypatch, table.encode())
    source = open_input("-")
    assert source.format == kind
    assert [(record.where, record.error) for record in source.records] == [("standard input:2", None)]


@pytest.mark.parametrize(
    "line",
    [
        "A text, with a question",
        "Vitamin O",
        "text",
        "Question, abstract of it",
        "Question; abstract of it",
        'The "text",abstract',
        f"{'word ' * 13},abstract",
        pytest.param("x" * 200_000, id="a long line"),
    ],
)
def test_text_that_resembles_a_table_is_text(tmp_path, line):
    assert open_input(input_file(tmp_path, "r.txt", f"{line}\nmore\n")).format == "text"


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_named_pipe_is_read_once_as_it_arrives(tmp_path, pack):
    pipe = tmp_path / "63"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(pack(b'\n{"id": 1, "text": "a"}\n{"id": 2}\n')))
    writer.start()
    source = open_input(str(pipe))
    assert source.format == "jsonl"
    assert [record.where for record in source.records] == [f"{pipe}:2", f"{pipe}:3"]
    writer.join()


def test_typed_texts_are_numbered():
    source = given_texts(["one", "two\nlines"])
    assert _values(source) == [{"id": 1, "text": "one"}, {"id": 2, "text": "two\nlines"}]


def test_typed_text_of_another_encoding_is_an_error():
    good, bad = given_texts(["sepsis", "caf\udce9"]).records
    assert (good.error, bad.error) == (None, "--text 2: not UTF-8; convert the text first")


@pytest.mark.parametrize("name", ["r.conll", "r.tsv", "r.txt", "r"])
@pytest.mark.parametrize("comment", ["# global.columns = FORM TAG\n# text = Vitamin B\n", "###MEDLINE:95369245\n\n"])
def test_comments_are_no_words(tmp_path, name, comment):
    source = open_input(input_file(tmp_path, name, f"{comment}BRCA1\tO\n#\tO\n\n{comment}is\tO\n"))
    assert [values["tokens"] for values in _values(source)] == [["BRCA1", "#"], ["is"]]


def test_a_header_with_a_number_sign_begins_a_table(tmp_path):
    source = open_input(input_file(tmp_path, "r.tsv", "# id\ttext\n1\tBRCA1 is.\n"))
    assert _values(source) == [{"# id": "1", "text": "BRCA1 is."}]
