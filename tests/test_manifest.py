"""Manifests are read as they were written; damaged and hostile ones are explained."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biosqueeze.errors import SqueezeError
from biosqueeze.manifest import FILE_NAME, Manifest, parse_manifest, read_manifest
from tests.manifests import history_entry, manifest_json, write_manifest

TASK = {"name": "ner", "data": "ncbi", "labels": ["O", "B-Disease"], "scheme": "BIO", "metric": "f1"}
TASK |= {"max_length": 128, "formulation": {"tagger": "crf"}, "benchmark": "blurb/ncbi-disease"}


def parse(values: Any) -> Manifest:
    return parse_manifest(values, FILE_NAME)


def test_no_file_is_no_manifest(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) is None


def test_manifest_is_written_as_it_was_read() -> None:
    values = manifest_json(task=TASK, own_head="crf", history=[history_entry(layers=[0, 2]), history_entry(layers=[])])
    values["model"]["shape"] = dict.fromkeys(("layers", "hidden", "heads", "ffn", "vocabulary", "positions"), 3)
    written = json.loads(json.dumps(parse(values).as_json()))
    assert written == values
    order = ["format", "stage", "version", "created", "parent", "head", "own_head", "task", "model", "metrics", "notes"]
    assert list(written) == [*order, "environment", "history"]
    assert list(written["task"]) == list(TASK)


def test_inherited_records_keep_unknown_keys() -> None:
    entry = parse(manifest_json(history=[history_entry(novelty=[1])])).history[0]
    assert entry.as_json() == history_entry(novelty=[1])
    task = parse(manifest_json(task={"name": "ner", "novelty": 1}, novelty=2)).task
    assert task is not None and task.as_json() == {"name": "ner", "labels": [], "novelty": 1}


def test_given_options_are_those_without_defaults() -> None:
    entry = history_entry(options={"layers": "2", "seed": 0, "out": "x"}, sources={"layers": "flag", "seed": "default"})
    assert parse(manifest_json(history=[entry])).history[0].given_options() == {"layers": "2"}


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"stage": None}, "stage is null, a string was expected"),
        ({"format": True}, "format is true or false, an integer was expected"),
        ({"format": 0}, "format is 0, 1 was expected"),
        ({"task": []}, "task is a list, an object was expected"),
        ({"task": {"name": "ner", "labels": [1]}}, "task.labels[0] is an integer, a string was expected"),
        ({"task": {"name": "ner", "max_length": "9"}}, "task.max_length is a string, an integer was expected"),
        ({"task": {}}, "task.name is missing"),
        ({"model": {}}, "model.shape is missing"),
        ({"metrics": 0.5}, "metrics is a number, an object was expected"),
        ({"history": []}, "history is empty"),
        ({"history": {}}, "history is an object, a list was expected"),
        ({"history": [history_entry(), 1]}, "history[1] is an integer, an object was expected"),
        ({"history": [history_entry(parents={})]}, "history[0].parents.parent is missing"),
        (
            {"history": [history_entry(parents={"parent": {"name": "x"}})]},
            "history[0].parents.parent.sha256 is missing",
        ),
        ({"history": [history_entry(layers=[-1])]}, "history[0].layers holds a negative number"),
        ({"history": [history_entry(sources={"lr": 1})]}, "history[0].sources.lr is an integer"),
    ],
)
def test_damage_is_named_by_file_key_and_type(change: dict[str, Any], cause: str) -> None:
    with pytest.raises(SqueezeError) as caught:
        parse(manifest_json(**change))
    assert str(caught.value).startswith(f"{FILE_NAME}: {cause}")
    assert "restore the file" in str(caught.value)


def test_total_of_parameters_is_required() -> None:
    values = manifest_json()
    values["model"]["parameters"] = {"head": 3}
    with pytest.raises(SqueezeError, match=r"model\.parameters\.total is missing"):
        parse(values)


@pytest.mark.parametrize("key", [key for key in manifest_json() if key != "task"])
def test_missing_key_is_named(key: str) -> None:
    values = manifest_json()
    del values[key]
    with pytest.raises(SqueezeError, match=f"{key} is missing"):
        parse(values)


def test_newer_format_names_the_version_to_install() -> None:
    with pytest.raises(SqueezeError, match=r"format is 2, .* install the version that wrote the file \(9\.1\)"):
        parse(manifest_json(format=2, version="9.1"))


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ('"text"', "a JSON object was expected"),
        ("[" * 100_000, "nested too deeply"),
        ('{"format": ' + "[" * 100_000, "nested too deeply"),
        ('{"format": ' + "9" * 5_000 + "}", "not valid JSON"),
        ("\ufeff{}", "not valid JSON"),
    ],
)
def test_hostile_json_is_explained(text: str, cause: str, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(text, encoding="utf-8")
    with pytest.raises(SqueezeError, match=cause) as caught:
        read_manifest(tmp_path)
    assert len(str(caught.value)) < 500


def test_other_encodings_are_explained(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b'{"stage": "\xff"}')
    with pytest.raises(SqueezeError, match="not valid JSON"):
        read_manifest(tmp_path)


def test_infinite_numbers_are_read(tmp_path: Path) -> None:
    write_manifest(tmp_path, metrics={"loss": float("inf")})
    written = read_manifest(tmp_path)
    assert written is not None and written.metrics["loss"] == float("inf")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in inner for place in _places(child, (*path, key)))]


PLACES = [place for place in _places(manifest_json(task=TASK)) if place]


@given(st.sampled_from(PLACES), JSON)
def test_any_value_in_any_place_is_read_or_explained(place: tuple[Any, ...], value: Any) -> None:
    values = json.loads(json.dumps(manifest_json(task=TASK)))
    parent = values
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = value
    try:
        written = parse(values)
    except SqueezeError as error:
        assert str(error).startswith(FILE_NAME)
    else:
        assert parse(json.loads(json.dumps(written.as_json()))).as_json() is not None
