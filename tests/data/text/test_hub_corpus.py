"""Corpora of the Hub: a local data set in its place, and a mocked `datasets`."""

import builtins
import csv
import gzip
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from biosqueeze.data.text.corpus import content_hash, corpus_files, read_lines, read_text_documents
from biosqueeze.data.text.hub_corpus import HubCorpus
from biosqueeze.errors import SqueezeError, UsageError
from tests.cli.run import Shell


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder laid out like a data set on the Hub."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder)
    return f"hub:{folder}"


def write(folder: Path, first: str = "One gene. It\nmatters.") -> None:
    """Write three records, one of them without text."""
    records = [{"id": 1, "body": first}, {"id": 2, "body": None}, {"id": 3, "body": "Another gene."}]
    (folder / "train.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def test_records_are_lines_and_documents(source: str) -> None:
    lines = ["One gene. It matters.", "Another gene."]
    assert corpus_files(source) == ()
    assert list(read_lines(f"{source}:body")) == list(read_lines(source, "body")) == lines
    assert list(read_text_documents(f"{source}:default:body")) == [[line] for line in lines]


def test_the_content_hash_changes_with_the_data(source: str) -> None:
    before = content_hash(source)
    assert content_hash(source) == before
    write(Path(source.removeprefix("hub:")), "Quite another text.")
    assert content_hash(source) != before


def test_two_fields_of_a_data_set_have_hashes_of_their_own(source: str) -> None:
    hashes = {content_hash(source + ending) for ending in ("", ":body", ":title")}
    assert len(hashes) == 3


@pytest.mark.parametrize(
    ("ending", "message"),
    [
        ("", "has no field 'text'; write hub:.*:FIELD with one of: id, body"),
        (":id", "field 'id' is a int, not text"),
        ("-missing:body", "datasets cannot read hub:.*-missing:body"),
    ],
)
def test_errors_name_fields_and_data_set(source: str, ending: str, message: str) -> None:
    with pytest.raises(SqueezeError, match=message):
        list(read_lines(source + ending))


@pytest.mark.parametrize("source", ["hub:", "hub:a:", "hub:a:b:c:d"])
def test_a_source_without_name_or_field_is_refused(source: str) -> None:
    with pytest.raises(UsageError, match="write hub:NAME, hub:NAME:FIELD"):
        corpus_files(source)


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__
    monkeypatch.delitem(sys.modules, "datasets", raising=False)

    def without(name: str, *rest: Any) -> Any:
        if name.split(".")[0] == "datasets":
            raise ModuleNotFoundError(name=name)
        return original(name, *rest)

    monkeypatch.setattr("biosqueeze.errors.importlib.import_module", without)
    with pytest.raises(SqueezeError, match=r'pip install "biosqueeze\[hub\]"'):
        corpus_files("hub:owner/name")


def test_the_hub_is_streamed_by_name_and_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    class Builder:
        hash = "commit"

        def as_streaming_dataset(self, split: str) -> Any:
            asked.append(split)
            yield {"text": "From far."}
            raise ConnectionError("the line is dead")

    def load(name: str, config: str | None, revision: str | None) -> Builder:
        asked.append((name, config, revision))
        return Builder()

    monkeypatch.setattr("datasets.load_dataset_builder", load)
    corpus = HubCorpus.parse("hub:owner/name@v1.0:large:text")
    assert corpus.revision() == "commit/large"
    texts = corpus.texts("other")
    assert next(texts) == "From far."
    assert asked == [("owner/name", "large", "v1.0")] * 2 + ["train"]
    with pytest.raises(SqueezeError, match=r"datasets cannot read hub:owner/name@v1.0:large:text \(the line is dead"):
        next(texts)


def test_progress_counts_the_bytes_of_the_texts(source: str) -> None:
    seen = []
    list(HubCorpus.parse(source).texts("body", SimpleNamespace(advance=seen.append)))
    assert seen == [len("One gene. It matters."), 0, len("Another gene.")]


def test_corpus_splits_the_hubs_records(shell: Shell, source: str, tmp_path: Path) -> None:
    result = shell("corpus", f"{source}:body", "-o", str(tmp_path / "out"), "--workers", "1")
    assert result.code == 0, result.err
    assert list(read_text_documents(str(tmp_path / "out"))) == [["One gene.", "It", "matters."], ["Another gene."]]
    with gzip.open(tmp_path / "out" / "sources.tsv.gz", "rt") as table:
        (listed,) = csv.DictReader(table, delimiter="\t")
    assert listed["path"] == f"{source}:body" and listed["articles"] == "3" and len(listed["sha256"]) == 64
