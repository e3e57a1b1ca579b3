import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biosqueeze.data.records.tables import read_file, read_records, splits_of
from biosqueeze.errors import SqueezeError, UsageError
from tests.data.records.input_files import write_file
from tests.error_messages import explained

HEADER = ("label", "sentence")


def _values(path, **options):
    return [dict(record.values) for record in read_file(path, **options)]


@pytest.mark.parametrize("name", ["a.tsv", "a.txt", "a.tsv.gz"])
def test_tabs_never_quote(tmp_path, name):
    path = write_file(tmp_path, name, '\ufeffLabel\tsentence\r\nx\tthe "so-called 5\' end\r\n\r\ny\t"a, b\r\n')
    assert _values(path, header=HEADER) == [
        {"Label": "x", "sentence": "the \"so-called 5' end"},
        {"Label": "y", "sentence": '"a, b'},
    ]
    assert [record.where for record in read_file(path, header=HEADER)] == [f"{path}:2", f"{path}:4"]


def test_texts_quoted_as_in_a_csv_are_warned_of(tmp_path, capsys):
    read_file(write_file(tmp_path, "a.tsv", 'label\ttext\nx\t"a ""b"" c"\ny\t"a" b "c"\nz\t"""a"" b"\n'), header=HEADER)
    said = " ".join(capsys.readouterr().err.split())
    assert "2 rows have a text in quotes with doubled ones" in said and "save the table as .csv" in said
    read_file(write_file(tmp_path, "a.csv", 'label,text\nx,"a ""b"" c"\n'), header=HEADER)
    assert "quotes" not in capsys.readouterr().err


def test_without_a_header_columns_are_numbered(tmp_path):
    path = write_file(tmp_path, "a.tsv", "x\tlabels\ny\tb\n")
    assert _values(path, header=HEADER) == [{"1": "x", "2": "labels"}, {"1": "y", "2": "b"}]
    assert _values(path) == _values(path, header=HEADER)


def test_an_unnamed_column_is_called_by_its_position(tmp_path):
    assert _values(write_file(tmp_path, "a.csv", ",label\n0,x\n"), header=HEADER) == [{"1": "0", "label": "x"}]


def test_two_columns_with_one_name(tmp_path):
    path = write_file(tmp_path, "a.tsv", "label\tlabel\nx\ty\n")
    explained(lambda: read_file(path, header=HEADER), "a.tsv:1", "two columns are called 'label'")


@given(st.lists(st.lists(st.text(st.characters(exclude_characters="\0\r", codec="utf-8")), min_size=2, max_size=2)))
def test_csv_returns_what_the_csv_module_wrote(tmp_path_factory, rows):
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator="\n").writerows([["label", "text"], *rows])
    path = write_file(tmp_path_factory.mktemp("csv"), "a.csv.gz", stream.getvalue())
    if not rows:
        explained(lambda: read_file(path, header=HEADER), "is empty")
    else:
        assert [list(row.values()) for row in _values(path, header=HEADER)] == rows


def test_a_long_field_of_a_csv_is_read(tmp_path):
    text = "word, " * 30_000
    assert _values(write_file(tmp_path, "a.csv", f'label,sentence\nx,"{text}"\n'), header=HEADER)[0]["sentence"] == text


def test_csv_rows_over_several_lines_keep_their_first_line(tmp_path):
    path = write_file(tmp_path, "a.csv", 'label,text\r\nx,"one\r\ntwo ""2"""\r\ny,three\r\n')
    records = read_file(path, header=HEADER)
    assert [(record.where, record.values["text"]) for record in records] == [
        (f"{path}:2", 'one\r\ntwo "2"'),
        (f"{path}:4", "three"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "a.tsv",
            "label\tsentence\nx\ty\nz\n",
            ("a.tsv:3", "1 columns, where line 1 has 2", "label, sentence", "a tab"),
        ),
        ("a.tsv", "x\ty\n\nx\ty\tz\n", ("a.tsv:3", "3 columns", "(1, 2)")),
        ("a.csv", "label,text\nx,a, b\n", ("a.csv:2", "3 columns", "quote a field")),
        ("a.csv", 'label,text\nx,y\nx,"a" b\n', ("a.csv:3", "not a row of a .csv", ".tsv")),
        ("a.csv", 'label,text\nx,"a\nb,c\n', ("a.csv:2", "not a row of a .csv")),
        ("a.tsv", b"label\tsentence\nx\tna\xefve\n", ("a.tsv:2", "not UTF-8", "iconv")),
        ("a.tsv", "", ("a.tsv is empty",)),
        ("a.tsv", "label\tsentence\n", ("a.tsv is empty",)),
        ("a.jsonl", "\n \n", ("a.jsonl is empty",)),
        ("a.json", " \n", ("a.json is empty",)),
        ("a.json", "[]", ("a.json is empty",)),
        ("a.jsonl", '{"a": 1}\n{"a": \n', ("a.jsonl:2", "invalid JSON", "column")),
        ("a.jsonl", '{"a": 1}\n[1]\n', ("a.jsonl:2", "a JSON list")),
        ("a.jsonl", '{"a": 1, "b": 2, "a": 3}\n', ("a.jsonl:1: the key 'a' occurs twice",)),
        ("a.txt", '{"a": 1}\n7\n', ("a.txt:2", "a JSON int")),
        ("a.json", '[{"a": 1},\n {"a": }]', ("a.json:2", "invalid JSON")),
        ("a.json", '[{"a": 1}, "b"]', ("a.json[1]", "a JSON str")),
        ("a.json", '{"1": {"a": 1},\n "1": {"a": 2}}', ("a.json: the key '1' occurs twice",)),
        ("a.json", '{"1": {"id": "2"}}', ('a.json["1"]', "another id, '2'")),
        ("a.json", '{"version": "1.1", "data": [{}]}', ("neither a list", "version: str, data: list")),
        ("a.json", "3", ("neither a list", "a int")),
    ],
)
def test_errors_name_file_and_line(tmp_path, name, content, words):
    path = write_file(tmp_path, name, content)
    explained(lambda: read_file(path, header=HEADER), *words)


RECORDS = [{"text": "caf\u00e9 \u2028 and", "label": "yes", "n": [1, 2]}, {"text": "", "label": None, "n": []}]


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt", "a.json", "a.jsonl.gz"])
def test_json_lines(tmp_path, name):
    text = "\ufeff" + "\r\n\n".join(json.dumps(record, ensure_ascii=False) for record in RECORDS)
    path = write_file(tmp_path, name, text)
    assert _values(path) == RECORDS
    assert [record.where for record in read_file(path)] == [f"{path}:1", f"{path}:3"]


@pytest.mark.parametrize("indent", [None, 2])
def test_json_lists_and_objects_of_records_by_id(tmp_path, indent):
    listed = write_file(tmp_path, "list.json", json.dumps(RECORDS, indent=indent))
    assert _values(listed) == RECORDS
    assert read_file(listed)[1].where == f"{listed}[1]"
    by_id = {"77": RECORDS[0], "78": {"id": 78, **RECORDS[1]}}
    path = write_file(tmp_path, "ids.json.gz", json.dumps(by_id, indent=indent))
    assert _values(path) == [{**RECORDS[0], "id": "77"}, {**RECORDS[1], "id": "78"}]
    assert read_file(path)[0].where == f'{path}["77"]'


def test_reads_splits_and_logs_files_and_columns(tmp_path, capsys):
    write_file(tmp_path, "train.tsv", "label\tsentence\nx\ta\ny\tb\n")
    write_file(tmp_path, "devel.jsonl", '{"label": "x", "text": "c"}\n')
    write_file(tmp_path, "test.txt", "x\td\n")
    splits = read_records(str(tmp_path), ("train", "dev", "test"), header=HEADER)
    assert {split: len(records) for split, records in splits.items()} == {"train": 2, "dev": 1, "test": 1}
    log = " ".join(capsys.readouterr().err.split())
    assert "train train.tsv 2 records (label, sentence)" in log
    assert "dev devel.jsonl 1 record (label, text); test test.txt 1 record (1, 2)" in log
    assert splits_of(str(tmp_path)) == ("train", "dev", "test")


def test_missing_and_unknown_splits(tmp_path):
    write_file(tmp_path, "train_0.tsv", "x\ty\n")
    explained(lambda: read_records(str(tmp_path), ("train",)), "no train split", "train_0.tsv", ".jsonl", "rename")
    assert splits_of(str(tmp_path)) == ()
    explained(lambda: read_records(str(tmp_path / "train_0.tsv"), ("train",)), "is a file", str(tmp_path))
    with pytest.raises(UsageError, match="'tst'"):
        read_records(str(tmp_path), ("tst",))


# The published row counts of each split.
REAL = {
    "biosses/blurb": {"train": 64, "dev": 16, "test": 20},
    "hoc/blurb": {"train": 12119, "dev": 1798, "test": 3547},
    "chemprot/scibert": {"train": 4169, "dev": 2427, "test": 3469},
}


@pytest.mark.real
@pytest.mark.parametrize("name", REAL)
def test_real_tables_count_as_published(real_data, name):
    splits = read_records(str(real_data / name), tuple(REAL[name]), header=("score", "labels"))
    assert {split: len(records) for split, records in splits.items()} == REAL[name]


@pytest.mark.real
def test_pubmedqa_reads_by_id(real_data):
    records = read_file(real_data / "pubmedqa" / "ori_pqal.json")
    assert len({record.values["id"] for record in records}) == len(records) == 1000


def test_a_single_surrogate_is_reported_with_its_line(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "rash \\ud83d\\ude00"}\n{"text": "rash \\ud83d"}\n')
    with pytest.raises(SqueezeError, match=r"train\.jsonl:2: a single surrogate"):
        list(read_file(tmp_path / "train.jsonl"))
