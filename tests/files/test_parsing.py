"""What others wrote is parsed within bounds, and each mistake in it has a place."""

import json
import tomllib
from pathlib import Path

import pytest

from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.files import parsing
from biosqueeze.files.parsing import max_document_bytes, max_line_bytes, parse_json, parse_toml, read_text


@pytest.mark.parametrize("text", ["[" * 50_000, '{"a":' * 200 + "1" + "}" * 200, "[" * 101 + "]" * 101])
def test_json_that_is_nested_too_deeply_is_invalid(text: str) -> None:
    with pytest.raises(json.JSONDecodeError, match="nested too deeply"):
        parse_json(text)


def test_json_nested_a_hundred_times_is_parsed() -> None:
    assert parse_json("[" * 100 + "]" * 100) == json.loads("[" * 100 + "]" * 100)


def test_an_integer_of_5000_digits_is_found_in_json() -> None:
    with pytest.raises(json.JSONDecodeError, match="too many digits: line 3 column 7"):
        parse_json('{"a": 1,\n"b": "x",\n"c": -' + "9" * 5000 + "}")


def test_hooks_see_what_json_holds() -> None:
    assert parse_json('{"a": 1, "a": 2}', object_pairs_hook=list) == [("a", 1), ("a", 2)]
    assert parse_json("[NaN]", parse_constant=str.lower) == ["nan"]


@pytest.mark.parametrize("text", ["a = " + "[" * 50_000, f"a = {'[' * 300}{']' * 300}", "a" + ".a" * 20_000 + " = 1"])
def test_toml_that_is_nested_too_deeply_is_invalid(text: str) -> None:
    with pytest.raises(tomllib.TOMLDecodeError, match="nested too deeply"):
        parse_toml(text)


def test_many_points_in_toml_are_no_depth() -> None:
    text = f'a = [{"0.1, " * 200}]\nb = """{"Point. " * 90}"""'
    assert parse_toml(text) == tomllib.loads(text)


def test_an_integer_of_5000_digits_is_found_in_toml() -> None:
    with pytest.raises(tomllib.TOMLDecodeError, match=r"out of range \(at line 2\)"):
        parse_toml("a = 1\nb = " + "9" * 5000)


def test_a_file_above_the_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    path.write_text("x" * (1 << 20))
    monkeypatch.setattr(parsing, "DOCUMENT_MEGABYTES", 1)
    assert len(read_text(path)) == 1 << 20
    path.write_text("x" * ((1 << 20) + 1))
    with pytest.raises(SqueezeError, match=r"x\.json is longer than 1 MB.*--max-record-mb 2"):
        read_text(path)


@pytest.mark.parametrize("value", ["0", "-1", "x", "1.5", "9" * 5000, "²"])
def test_the_limit_is_a_number_of_megabytes(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(parsing.VARIABLE, value)
    with pytest.raises(UsageError, match="is not a number of megabytes"):
        max_line_bytes()


def test_what_is_given_holds_for_lines_and_raises_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (max_line_bytes(), max_document_bytes()) == (2 << 20, 64 << 20)
    monkeypatch.setenv(parsing.VARIABLE, "16")
    assert (max_line_bytes(), max_document_bytes()) == (16 << 20, 64 << 20)
    monkeypatch.setenv(parsing.VARIABLE, "100")
    assert (max_line_bytes(), max_document_bytes()) == (100 << 20, 100 << 20)
