"""What `biosqueeze corpus` says of fields and languages that the sources have not, and of sources without articles."""

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from tests.cli.run import Shell
from tests.corpora import sources
from tests.corpora.built import documents

TITLED = [{"id": str(n), "title": f"Title {n}.", "body": f"Body text {n}."} for n in (1, 2)]


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(records), path)
    else:
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def said(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_a_field_that_no_record_has(name: str, shell: Shell, tmp_path: Path) -> None:
    path, out = write(tmp_path / name, TITLED), tmp_path / "out"
    command = ("corpus", path, "-o", out, "--workers", "1")
    refused = shell(*command, "--field", "bdy")
    assert (refused.code, list(tmp_path.glob("out*/"))) == (1, [])
    assert f"{path}: no record has the field 'bdy', but id, title, body; name" in said(refused.err)
    warned = shell(*command)
    assert warned.code == 0
    assert f"{path}: no record has the field 'text', but id, title, body; title and abstract" in said(warned.err)
    right = shell(*command, "--field", "body", "--force")
    assert right.code == 0 and "no record has" not in right.err
    assert documents(out) == [f"Title {n}.\nBody text {n}." for n in (1, 2)]


def test_records_that_lack_a_field_beside_others(shell: Shell, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"title": "Title."}, *TITLED, {"title": "Another title."}])
    result = shell("corpus", path, "-o", tmp_path / "out", "--workers", "1", "--field", "body")
    assert result.code == 0 and "no record has" not in result.err
    assert len(documents(tmp_path / "out")) == 4


def test_abstracts_alone_need_no_warning(shell: Shell, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"pmid": 1, "title": "Title.", "abstract": "Abstract.", "language": "en"}])
    assert "warning" not in shell("corpus", path, "-o", tmp_path / "out", "--workers", "1").err
    titles = shell("corpus", write(path, TITLED), "-o", tmp_path / "titles", "--keep", "title", "--workers", "1")
    assert titles.code == 0 and "warning" not in titles.err


def test_each_language_of_an_article_counts(shell: Shell, tmp_path: Path) -> None:
    both = sources.citation(1, "In two.").replace("<Language>", "<Language>fre</Language><Language>", 1)
    sources.pubmed(tmp_path / "1.xml", [both, sources.citation(2, "In one.", language="fre")])
    write(tmp_path / "2.jsonl", [{"text": "A record.", "language": ["fr", "en"]}, {"text": "No.", "language": ["fr"]}])
    options = ("--language", "en", "--keep", "abstract,body", "--workers", "1")
    result = shell("corpus", tmp_path, "-o", tmp_path / "out", *options)
    assert result.code == 0 and "warning" not in result.err
    assert documents(tmp_path / "out") == ["In two.", "A record."]


def test_a_language_that_is_no_code_counts_as_none(shell: Shell, tmp_path: Path) -> None:
    records = [{"text": f"Text {n}.", "language": language} for n, language in enumerate(("English", "French", "fr"))]
    path = write(tmp_path / "a.jsonl", records)
    result = shell("corpus", path, "-o", tmp_path / "out", "--language", "en", "--workers", "1")
    assert result.code == 0
    assert documents(tmp_path / "out") == ["Text 0.", "Text 1."]
    assert said(result.err).count("warning") == 1
    assert "languages that are no codes such as en: english, french; articles" in said(result.err)


def test_a_source_without_articles_is_named(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Text.\n")
    empty = sources.pubmed(tmp_path / "b.xml", [])
    deletions = sources.pubmed(tmp_path / "c.xml", [], deleted=[7])
    result = shell("corpus", tmp_path, "-o", tmp_path / "out", "--workers", "1")
    assert result.code == 0
    assert f"{empty} holds no article" in said(result.err)
    assert str(deletions) not in said(result.err)


def test_a_held_out_share_without_an_article(shell: Shell, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", TITLED)
    result = shell("corpus", path, "-o", tmp_path / "out", "--field", "body", "--held-out", "0.001", "--workers", "1")
    assert result.code == 0
    assert "--held-out 0.001: none of the 2 articles was drawn" in said(result.err)
