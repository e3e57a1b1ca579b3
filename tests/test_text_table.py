"""Tables that are fitted into a width."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from biosqueeze.text_table import TextTable, draw, shortened

NAMES = st.text("abc/-_.", min_size=1, max_size=40)
NUMBERS = st.integers(0, 999_999).map(lambda n: f"{n:,}") | st.sampled_from(["-", "81.20 ± 0.31", "100.0%", "8x128"])


def text_of(table: TextTable, width: int) -> str:
    return "\n".join(line.text for line in draw(table, width))


def bench_of(*names: str) -> TextTable:
    columns = ("checkpoint", "backend", "parameters", "MB", "F1", "retention", "ms at 1x128", "speed-up", "ms at 8x128")
    facts = ("onnxruntime:int8", "22.6M", "127,89/4", "0.7785", "100.0%", "1.00x", "1.0/0x", "-")
    return TextTable("throughput", columns, tuple((name, *facts) for name in names), keys=2)


@given(st.data(), st.integers(30, 200), st.integers(1, 8), st.integers(1, 12), st.integers(1, 3))
def test_no_line_is_too_wide_and_no_number_broken(data, width, height, columns, keys):
    kinds = [NAMES] * keys + [data.draw(st.sampled_from([NAMES, NUMBERS])) for _ in range(columns)]
    rows = tuple(tuple(data.draw(kind) for kind in kinds) for _ in range(height))
    heads = tuple(data.draw(st.lists(NAMES, min_size=columns + keys, max_size=columns + keys)))
    table = TextTable("a title of 40 columns, of several words", heads, rows, keys)
    drawn = text_of(table, width)
    assert max(map(len, drawn.splitlines())) <= width
    for number in {cell for row in rows for cell in row[keys:] if re.search(r"\d", cell)}:
        assert number in drawn


@pytest.mark.parametrize("width", [60, 80, 100, 130, 160])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_bench_is_readable_at_every_width(width, count):
    drawn = text_of(bench_of(*(f"runs/2026/student-{number}" for number in range(count))), width)
    assert max(map(len, drawn.splitlines())) <= width
    assert drawn.count("0.7785") == drawn.count("100.0%") == count
    assert drawn.count("onnxruntime:int8") >= count  # a name that fits is whole


def test_single_row_becomes_keys_and_values():
    lines = text_of(bench_of("student"), 80).splitlines()
    assert lines[:2] == ["throughput", "checkpoint   student"]
    assert "parameters   22.6M" in lines


def test_few_rows_become_columns():
    lines = text_of(bench_of("teacher", "student"), 80).splitlines()
    assert [line.split() for line in lines][1] == ["checkpoint", "teacher", "student"]
    assert ["MB", "127,89/4", "127,89/4"] in [line.split() for line in lines]


def test_many_rows_are_parted_with_their_keys():
    drawn = text_of(bench_of(*"abcdef"), 80)
    assert drawn.count("checkpoint") == drawn.count("backend") > 1
    assert drawn.count("throughput") == 1


def test_a_table_that_fits_is_drawn_as_it_is():
    lines = text_of(TextTable("", ("metric", "value"), (("f1", "0.7785"), ("support", "960"))), 80).splitlines()
    assert lines == ["  metric     value", " ──────────────────", "  f1        0.7785", "  support      960"]


def test_names_are_shortened_in_the_middle():
    assert shortened("checkpoints/teacher", 11) == "check…acher"
    assert shortened("teacher", 7) == "teacher"
    table = TextTable("", ("name", *"abc"), tuple((f"{'x' * 60}-{n}", *["123,456,789"] * 3) for n in range(9)))
    assert "x-8" in text_of(table, 60)


def test_sentences_are_broken_between_words():
    paper = "Domain-specific pretraining for biomedical language processing, with tables"
    drawn = text_of(TextTable("", ("suite", "count", "paper"), (("blurb", "13", paper),) * 5), 60)
    assert "processing" in drawn and "…" not in drawn


def test_wide_characters_count_twice():
    table = TextTable("", ("name", *"abcdef"), (("漢字" * 12, *["1,234,567"] * 6),) * 5)
    assert max(map(cell_len, text_of(table, 80).splitlines())) <= 80
