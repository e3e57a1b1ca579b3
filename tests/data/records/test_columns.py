import pytest

from biosqueeze.data.records.columns import Columns, check_unique, delimiter_of, find_column, parse_column_options
from biosqueeze.data.records.record import DataRecord
from biosqueeze.data.records.tables import read_file
from biosqueeze.errors import SqueezeError, UsageError

RECORDS = [
    DataRecord("t.tsv:2", {"Sentence": "a", "label": "x"}),
    DataRecord("t.tsv:3", {"Sentence": "b", "label": "y"}),
]


def test_the_first_known_name_wins_whatever_its_case():
    assert find_column(RECORDS, "text", ("text", "sentence", "label"), {}) == "Sentence"
    both = [DataRecord("t:1", {"TEXT": "", "text": ""})]
    assert find_column(both, "text", ("text",), {}) == "text"
    assert find_column([DataRecord("t:1", {"TEXT": "", "Text": ""})], "text", ("text",), {}) == "TEXT"


def test_a_requested_column_goes_first():
    assert find_column(RECORDS, "text", ("sentence",), {"text": "label", "other": "z"}) == "label"


def test_a_missing_column_lists_the_others_and_the_option():
    with pytest.raises(SqueezeError) as caught:
        find_column(RECORDS, "text", ("body", "abstract"), {})
    for fragment in ("t.tsv:2", "no column for 'text'", "body, abstract", "Sentence, label", "--column text=NAME"):
        assert fragment in str(caught.value)
    with pytest.raises(SqueezeError, match="no column 'body'; there are Sentence, label"):
        find_column(RECORDS, "text", ("sentence",), {"text": "body"})


def test_a_record_without_the_field_is_named():
    ragged = [*RECORDS, DataRecord("t.jsonl:9", {"label": "x"})]
    with pytest.raises(SqueezeError, match=r"t\.jsonl:9: no field 'Sentence'"):
        find_column(ragged, "text", ("sentence",), {})
    assert find_column(ragged, "label", ("label",), {}) == "label"


def test_roles_of_a_table():
    known = {"text": ("sentence", "1"), "label": ("label", "2"), "id": ("index",)}
    columns = Columns(known, optional=frozenset({"id"}))
    assert columns.of(RECORDS) == {"text": "Sentence", "label": "label"}
    assert columns.header == ("sentence", "label", "index")
    bare = [DataRecord("t:1", {"1": "a", "2": "b"})]
    assert columns.of(bare) == {"text": "1", "label": "2"}
    requested = Columns(known, {"id": "PMID"}, frozenset({"id"}))
    assert requested.header[0] == "PMID"
    with pytest.raises(SqueezeError, match="no column 'PMID'"):
        requested.of(RECORDS)


def test_a_number_is_a_position_and_marks_no_header(tmp_path):
    columns = Columns({"text": ("text",), "label": ("label",)}, {"text": "1", "label": "2"})
    assert columns.header == ("text", "label")
    (tmp_path / "t.tsv").write_text("one\t1\ntwo\t2\n")
    first, second = read_file(tmp_path / "t.tsv", header=columns.header)
    assert (dict(first.values), dict(second.values)) == ({"1": "one", "2": "1"}, {"1": "two", "2": "2"})


def test_an_unknown_role_is_refused():
    with pytest.raises(UsageError, match=r"txet=a: no column is read.*Did you mean 'text'"):
        Columns({"text": ("text",)}, {"txet": "a"})


def test_column_options():
    assert parse_column_options(["text=abstract", " label = a=b "]) == {"text": "abstract", "label": "a=b"}


@pytest.mark.parametrize("column", [["text"], ["=a"], ["text="], ["text=a", "text=b"]])
def test_invalid_column_options(column):
    with pytest.raises(UsageError, match="--column"):
        parse_column_options(column)


def test_duplicate_values_are_reported_with_both_places():
    check_unique(RECORDS, "label")
    twice = [*RECORDS, DataRecord("t.tsv:4", {"Sentence": "a", "label": "z"})]
    with pytest.raises(SqueezeError, match=r"t\.tsv:4: the Sentence 'a' is already used at t\.tsv:2"):
        check_unique(twice, "Sentence")


@pytest.mark.parametrize(
    ("line", "mark"),
    [
        ("text,label;kind", ","),
        ("text;label", ";"),
        ("text\tlabel", "\t"),
        ("text, label", ","),
        ("text", ","),
        ('"It helps, doctor";yes', ";"),
        ("It helps, they say;yes", ";"),
        ("It helps; they say,yes", ","),
        ('"It helps, they say', ","),
    ],
)
def test_the_mark_between_the_fields_of_a_csv(line, mark):
    assert delimiter_of(line) == mark
