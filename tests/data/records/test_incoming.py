import gzip
import sys

import pytest

from biosqueeze.data.records.incoming import open_input
from biosqueeze.errors import SqueezeError, UsageError
from tests.data.records.input_files import input_file
from tests.standard_input import pipe_in

JSON = '{"id": "a", "text": "one"}\n\n{"text": "two"}\n'
PUBTATOR = "1|t|One title.\n1|a|And more.\n1\t0\t3\tTwo\tGene\n\n2|t|Alone\n"


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz", "r.txt", "r"])
def test_json_lines_by_suffix_or_first_line(tmp_path, name):
    source = open_input(input_file(tmp_path, name, JSON))
    first, second = source.records
    assert source.format == "jsonl"
    assert (first.values, first.id, first.error) == ({"id": "a", "text": "one"}, "a", None)
    assert second.id is None
    assert second.where == f"{source.name}:3"


@pytest.mark.parametrize("name", ["r.pubtator", "r.PubTator.gz", "corpus.txt"])
def test_pubtator_is_read_without_its_annotations(tmp_path, name):
    source = open_input(input_file(tmp_path, name, PUBTATOR))  # its annotation does not match the text
    assert source.format == "pubtator"
    assert [(record.id, record.values["text"]) for record in source.records] == [
        ("1", "One title.\nAnd more."),
        ("2", "Alone"),
    ]


def test_one_text_per_line(tmp_path):
    source = open_input(input_file(tmp_path, "r.txt", "First one.\n\n  Second\n"))
    assert source.format == "text"
    assert [record.values for record in source.records] == [
        {"id": 1, "text": "First one."},
        {"id": 3, "text": "  Second"},
    ]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_standard_input(monkeypatch, pack):
    pipe_in(monkeypatch, pack(JSON.encode()))
    source = open_input("-")
    assert [record.where for record in source.records] == ["standard input:1", "standard input:3"]


@pytest.mark.parametrize(
    ("line", "fragment"),
    [
        ("foo", "invalid JSON"),
        ('{"id": 1', "invalid JSON"),
        ("[1, 2]", "jq -c '.[]'"),
        ("3", "a JSON int"),
        ('{"id": NaN, "text": "x"}', "NaN"),
        ('{"id": 1e400, "text": "x"}', "1e400 is too large a number"),
        ('{"text": "x", "scores": [0.5, -1.5e999]}', "-1.5e999 is too large a number"),
        (r'{"text": "\ud800"}', "invalid JSON"),
        ("[" * 100_000, "invalid JSON"),
    ],
)
def test_a_bad_line_has_an_error_and_the_rest_is_read(tmp_path, line, fragment):
    good, bad, last = open_input(input_file(tmp_path, "r.jsonl", f'{{"id": 1}}\n{line}\n{{"id": 3}}\n')).records
    assert (good.error, last.error, last.id) == (None, None, 3)
    assert fragment in bad.error
    assert bad.error.startswith(bad.where) and bad.where.endswith("r.jsonl:2")
    assert "\n" not in bad.error


@pytest.mark.parametrize("text", ['[\n  {"id": 1}\n]\n', '[{"id": 1},\n{"id": 2}]\n', '[ {"id": 1}]'])
def test_a_json_list_is_refused_with_a_way_out(tmp_path, monkeypatch, text):
    for name in ("r.json", "r.txt", "r"):
        with pytest.raises(
            SqueezeError, match=rf"{name}:1: a JSON list, .* such as `jq -c '\.\[\]' {tmp_path}/{name}`"
        ):
            open_input(input_file(tmp_path, name, text))
    with pytest.raises(SqueezeError, match=rf"such as `gzip -dc {tmp_path}/r\.jsonl\.gz \| jq -c '\.\[\]'`"):
        open_input(input_file(tmp_path, "r.jsonl.gz", text))
    pipe_in(monkeypatch, text.encode())
    with pytest.raises(SqueezeError, match=r"with `\| jq -c '\.\[\]' \|` in the pipe"):
        open_input("-")


def test_numbers_with_a_fraction_are_read(tmp_path):
    (record,) = open_input(input_file(tmp_path, "r.jsonl", '{"id": 1.5e3, "score": -0.25}')).records
    assert record.values == {"id": 1500.0, "score": -0.25}


def test_a_list_in_a_compressed_file_names_gzip(tmp_path):
    _, bad = open_input(input_file(tmp_path, "r.jsonl.gz", '{"id": 1}\n[1]\n')).records
    assert f"such as `gzip -dc {tmp_path}/r.jsonl.gz | jq -c '.[]'`" in bad.error


def test_a_title_in_brackets_is_text(tmp_path):
    assert open_input(input_file(tmp_path, "r.txt", "[Treatment of sepsis]\n")).format == "text"


def test_a_pair_of_surrogates_is_one_character(tmp_path):
    (record,) = open_input(input_file(tmp_path, "r.jsonl", r'{"text": "\ud83d\ude00"}')).records
    assert record.values == {"text": "\U0001f600"}


def test_a_bad_document_has_an_error_and_the_rest_is_read(tmp_path):
    text = "1|t|One\nstray\n2|a|No title\n3|t|Three\n3|a|A\n3|a|B\n4|t|Four\n"
    one, two, three, four = open_input(input_file(tmp_path, "r.pubtator", text)).records
    assert [bad.id for bad in (one, two, three)] == ["1", "2", "3"]
    assert "r.pubtator:2" in one.error and "not a line of PubTator" in one.error
    assert "no title" in two.error
    assert "second abstract" in three.error
    assert (four.error, four.values["text"]) == (None, "Four")


@pytest.mark.parametrize("name", ["r.txt", "r.txt.gz"])
@pytest.mark.parametrize("junk", [b"caf\xe9", b"a\0b"])
def test_a_line_that_is_not_utf8_has_an_error(tmp_path, name, junk):
    packed = gzip.compress if name.endswith(".gz") else bytes
    (tmp_path / name).write_bytes(packed(b"\xef\xbb\xbfOne\n" + junk + b"\r\nThree\n"))
    one, two, three = open_input(str(tmp_path / name)).records
    assert (one.values, three.values) == ({"id": 1, "text": "One"}, {"id": 3, "text": "Three"})
    assert (two.values, two.where) == ({"id": 2}, f"{tmp_path / name}:2")
    assert two.error.startswith(f"{two.where}: ") and "iconv" in two.error


def test_json_and_pubtator_that_are_not_utf8(tmp_path, monkeypatch):
    pipe_in(monkeypatch, b'{"id": "caf\xe9"}\n' + JSON.encode())
    first, *rest = open_input("-").records
    assert (first.values, [record.error for record in rest]) == ({}, [None, None])
    assert first.error.startswith("standard input:1: not UTF-8 text") and "in the pipe" in first.error
    path = tmp_path / "r.pubtator"
    path.write_bytes(b"1|t|One\n1|a|And\n\n2|t|caf\xe9\n2|a|And\n\n3|t|Three\n3|a|\xe9\n\n4|t|Four\n")
    records = list(open_input(str(path)).records)
    assert [record.id for record in records] == ["1", "2", "3", "4"]
    assert [record.error is None for record in records] == [True, False, False, True]
    assert "r.pubtator:4: not UTF-8" in records[1].error and "r.pubtator:8: not UTF-8" in records[2].error


@pytest.mark.parametrize("name", ["c.xml", "c.XML.gz", "c.nxml", "c.html", "c.parquet", "c.xlsx", "c.docx"])
def test_other_formats_are_refused_by_suffix(tmp_path, name):
    with pytest.raises(SqueezeError, match=r"JSON lines .* as PubTator, as a table, or as one text on each line"):
        open_input(input_file(tmp_path, name, "The\tO\n"))


def test_xml_is_refused_by_the_first_line(tmp_path, monkeypatch):
    xml = '\ufeff<?xml version="1.0"?>\n<collection>\n'
    with pytest.raises(SqueezeError, match=r"corpus\.txt is XML"):
        open_input(input_file(tmp_path, "corpus.txt", xml))
    pipe_in(monkeypatch, xml.encode())
    with pytest.raises(SqueezeError, match="standard input is XML"):
        open_input("-")


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("PMID- 38012345", "in PubMed's MEDLINE"),
        ("TY  - JOUR", "in the RIS"),
        ("%PDF-1.4", "PDF"),
        ("<html lang=en>", "HTML"),
    ],
)
def test_exports_of_references_are_refused(tmp_path, line, what):
    with pytest.raises(SqueezeError, match=rf"set\.txt is {what}.*, and input records were expected"):
        open_input(input_file(tmp_path, "set.txt", f"\n{line}\nTI  - A title.\n"))


def test_unreadable_sources_are_reported(tmp_path, monkeypatch):
    with pytest.raises(SqueezeError, match="does not exist"):
        open_input(str(tmp_path / "absent"))
    with pytest.raises(SqueezeError, match="is a directory"):
        open_input(str(tmp_path))
    with pytest.raises(SqueezeError, match="is empty"):
        open_input(input_file(tmp_path, "r.txt", "\n \n"))
    pipe_in(monkeypatch, b"")
    with pytest.raises(SqueezeError, match="did the command before it fail"):
        open_input("-")
    pipe_in(monkeypatch, gzip.compress(JSON.encode())[:-9])
    with pytest.raises(SqueezeError, match="gzip data is damaged"):
        list(open_input("-").records)
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageError, match="nothing is piped in"):
        open_input("-")


def test_markup_is_refused_by_the_first_line(tmp_path):
    with pytest.raises(SqueezeError, match="input records were expected"):
        open_input(input_file(tmp_path, "corpus.txt", "<!DOCTYPE article>\n\nmore\n"))


def test_lines_that_end_with_carriage_returns_alone(tmp_path):
    (record,) = open_input(input_file(tmp_path, "r.txt", "one\rtwo\r")).records
    assert "carriage return within the line" in record.error
