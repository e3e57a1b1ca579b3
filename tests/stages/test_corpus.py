"""`biosqueeze corpus` from sources to shards, with damaged files and filters."""

import csv
import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from biosqueeze.corpora import build, parts
from biosqueeze.data.text.corpus import read_lines
from tests.cli.run import Shell
from tests.corpora import sources
from tests.corpora.built import documents, manifest_of


def test_articles_versions_and_duplicates(shell: Shell, baseline: Path, tmp_path: Path) -> None:
    out = tmp_path / "corpus"
    result = shell("corpus", str(baseline), "-o", str(out), "--workers", "1")
    assert result.code == 0, result.err
    assert result.out.strip() == str(out)
    manifest = manifest_of(out)
    assert manifest["articles"] == 122
    assert manifest["dropped"] == {"older version": 1, "withdrawn": 1, "duplicate": 1}
    texts = documents(out)
    assert len(texts) == manifest["train"]["documents"] == 119
    assert "A title.\nThe new version." in texts
    # A title and four sentences, one on each line, and every --corpus reads them.
    assert list(read_lines(str(out))) == [line for text in texts for line in text.splitlines()]
    assert sum(len(text.splitlines()) == 5 for text in texts) == 118
    listed = gzip.decompress((out / "documents.tsv.gz").read_bytes()).decode().splitlines()
    assert len(listed) == 119
    assert listed[0].split("\t") == ["2", "000000-000.txt.gz"]


def test_numbers_of_two_sources_are_no_versions(shell: Shell, tmp_path: Path) -> None:
    for name in "ab":
        lines = (json.dumps({"id": number, "text": f"Text {number} of {name}."}) for number in (1, 2))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    result = shell("corpus", tmp_path / "a.jsonl", tmp_path / "b.jsonl", "-o", tmp_path / "out", "--workers", "1")
    assert result.code == 0, result.err
    assert manifest_of(tmp_path / "out")["train"]["documents"] == 4


def test_every_source_is_listed(shell: Shell, baseline: Path, tmp_path: Path) -> None:
    assert shell("corpus", str(baseline), "-o", str(tmp_path / "out"), "--workers", "1").code == 0
    table = gzip.decompress((tmp_path / "out" / "sources.tsv.gz").read_bytes())
    read = list(csv.DictReader(table.decode().splitlines(), delimiter="\t"))
    files = sorted(baseline.iterdir())
    assert [source["path"] for source in read] == list(map(str, files))
    assert [source["sha256"] for source in read] == [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    assert [source["articles"] for source in read] == ["40", "40", "40", "2"]
    counts = {"files": 4, "bytes": sum(path.stat().st_size for path in files)}
    known = {"list": "sources.tsv.gz", **counts, "sha256": hashlib.sha256(table).hexdigest()}
    assert manifest_of(tmp_path / "out")["sources"] == known


def test_a_corpus_of_very_many_files(shell: Shell, tmp_path: Path, monkeypatch: Any) -> None:
    """The manifest does not grow with the sources."""
    monkeypatch.setattr(parts, "MOST_FILES", 150)
    (tmp_path / "texts").mkdir()
    for number in range(400):
        (tmp_path / "texts" / f"{number}.txt").write_text(f"Text {number} is here.\n")
    assert shell("corpus", str(tmp_path / "texts"), "-o", str(tmp_path / "out"), "--workers", "1").code == 0
    assert manifest_of(tmp_path / "out")["sources"]["files"] == 400
    assert (tmp_path / "out" / "corpus.json").stat().st_size < 5000
    assert len(documents(tmp_path / "out")) == 400


def test_plan_counts_one_file(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A sentence.\n")
    said = shell("corpus", tmp_path / "a.txt", "-o", tmp_path / "out", "--workers", "1", "--dry-run").err
    assert "read 1 file (0.0 MB) with 1 worker\n" in said


def test_workers_give_the_same_corpus(shell: Shell, baseline: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(build, "PART_BYTES", 1)
    options = ["--held-out", "0.2", "--near-duplicates", "0.8", "--seed", "3"]
    for name, workers in (("one", "1"), ("two", "2")):
        result = shell("corpus", str(baseline), "-o", str(tmp_path / name), "--workers", workers, *options)
        assert result.code == 0, result.err
    one, two = (manifest_of(tmp_path / name) for name in ("one", "two"))
    assert one["shards"] == two["shards"]
    assert one["sources"] == two["sources"]
    assert 5 < one["held-out"]["documents"] < 50
    held_out = set(documents(tmp_path / "one" / "held-out"))
    assert held_out
    assert not held_out & set(documents(tmp_path / "one"))


def test_damaged_files_are_skipped_and_counted(shell: Shell, baseline: Path, tmp_path: Path) -> None:
    whole = (baseline / "pubmed1.xml.gz").read_bytes()
    (baseline / "pubmed1.xml.gz").write_bytes(whole[: len(whole) // 2])
    out = tmp_path / "out"
    result = shell("corpus", str(baseline), "-o", str(out), "--workers", "1")
    assert result.code == 0
    assert "pubmed1.xml.gz is damaged and was skipped" in result.err
    manifest = manifest_of(out)
    assert manifest["damaged_files"] == 1
    assert manifest["articles"] == 82
    assert manifest["train"]["documents"] == 79
    strict = shell("corpus", str(baseline), "-o", str(tmp_path / "strict"), "--workers", "1", "--strict")
    assert strict.code == 1
    assert "pubmed1.xml.gz" in strict.err
    assert not (tmp_path / "strict").exists()


def test_filters_are_counted(shell: Shell, tmp_path: Path) -> None:
    test_sentence = "A test sentence that nobody may see before the test."
    citations = [
        sources.citation(1, sources.abstract(1)),
        sources.citation(2, sources.abstract(2), language="ger"),
        sources.citation(3, sources.abstract(3), kind="Retracted Publication"),
        sources.citation(4, "Too short."),
        sources.citation(5, f"{sources.abstract(5)} {test_sentence}"),
    ]
    source = sources.pubmed(tmp_path / "a.xml", citations)
    sources.packed(tmp_path / "data" / "test.tsv", f"id\ttext\n1\t{test_sentence}\n".encode())
    out = tmp_path / "out"
    options = ["--min-words", "20", "--language", "en", "--drop-retracted", "--against", str(tmp_path / "data")]
    result = shell("corpus", str(source), "-o", str(out), *options)
    assert result.code == 0, result.err
    assert manifest_of(out)["dropped"] == {
        "other language": 1,
        "retracted": 1,
        "too short": 1,
        "contains a test sentence": 1,
    }
    listed = (out / "contaminated.tsv").read_text().splitlines()
    assert listed[1].split("\t")[1:] == ["5", f"{tmp_path / 'data' / 'test.tsv'}:2"]


def test_half_of_a_surrogate_pair_ends_no_build(shell: Shell, tmp_path: Path) -> None:
    pytest.importorskip("rensa")
    test_sentence = "A test sentence that nobody may see before the test."
    source = tmp_path / "a.jsonl"
    source.write_text(
        f'{{"id": "1\\ud83d", "text": "{test_sentence}"}}\n{{"id": "2", "text": "Half \\ud83d a pair."}}\n'
    )
    sources.packed(tmp_path / "data" / "test.tsv", f"id\ttext\n1\t{test_sentence}\n".encode())
    options = ("--near-duplicates", "0.8", "--against", tmp_path / "data", "--workers", "1")
    result = shell("corpus", source, "-o", tmp_path / "out", *options)
    assert result.code == 0, result.err
    assert (tmp_path / "out" / "contaminated.tsv").read_text().splitlines()[1].split("\t")[1] == "1?"
    assert list(read_lines(str(tmp_path / "out"))) == ["Half ? a pair."]


def test_no_older_version_in_place_of_a_dropped_one(shell: Shell, tmp_path: Path) -> None:
    retracted = sources.citation(1, "The new version.", kind="Retracted Publication")
    files = {"1.xml": [sources.citation(number, sources.abstract(number)) for number in (1, 2)], "2.xml": [retracted]}
    for name, citations in files.items():
        sources.pubmed(tmp_path / "in" / name, citations)
    (tmp_path / "in" / "3.xml").write_text(f"<PubmedArticleSet>{retracted.replace('>1<', '>2<')}")  # cut short
    out = tmp_path / "out"
    result = shell("corpus", tmp_path / "in", "-o", out, "--drop-retracted")
    assert result.code == 0, result.err
    assert manifest_of(out)["dropped"] == {"retracted": 1, "older version": 1}
    assert documents(out) == ["A title.\n" + sources.abstract(2).replace(". ", ".\n")]


@pytest.mark.parametrize("language", ["ja", "JA", "jpn"])
def test_languages_by_codes_of_two_and_three_letters(shell: Shell, tmp_path: Path, language: str) -> None:
    texts = ["Of PubMed.", "Of a record.", "Of PMC."]
    sources.pubmed(tmp_path / "1.xml", [sources.citation(1, texts[0], language="jpn"), sources.citation(2, "English.")])
    records = [{"text": texts[1], "language": "ja-JP"}, {"text": "English.", "language": "en"}]
    (tmp_path / "2.jsonl").write_text("\n".join(map(json.dumps, records)))
    (tmp_path / "3.nxml").write_text(f"<article xml:lang='ja'><body><p>{texts[2]}</p></body></article>")
    result = shell("corpus", tmp_path, "-o", tmp_path / "out", "--language", language, "--keep", "abstract,body")
    assert result.code == 0, result.err
    assert documents(tmp_path / "out") == texts


REFUSED = {
    "nothing left": (["--min-words", "999"], 1, "no article is left"),
    "all held out": (["--held-out", "0.99999"], 1, "held out); change"),
    "unknown part": (["--keep", "title,footnotes"], 2, "footnotes"),
    "no directory": (["--against", "absent"], 1, "absent"),
    "wrong sample": (["--sample", "web=1"], 2, "KIND=AMOUNT"),
    "unknown language": (["--language", "English"], 2, "--language English"),
    "field of XML": (["--field", "note"], 2, "--field is for JSON lines"),
    "nothing to resume": (["--resume"], 1, "no interrupted run"),
    "no place": (["-o", "/proc/absent/corpus"], 1, "no directory can be made in /proc"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(shell: Shell, baseline: Path, tmp_path: Path, case: str) -> None:
    options, code, message = REFUSED[case]
    result = shell("corpus", str(baseline), "-o", str(tmp_path / "out"), "--workers", "1", *options)
    assert result.code == code
    assert message in result.err
    assert not list(tmp_path.glob("out*/"))  # so that other filters need no --force


@pytest.mark.parametrize("name", ["a.csv", "a.TSV.gz"])
def test_a_table_is_refused(name: str, shell: Shell, tmp_path: Path) -> None:
    sources.packed(tmp_path / name, b"id,text\n1,Aspirin reduces fever.\n")
    result = shell("corpus", str(tmp_path / name), "-o", str(tmp_path / "out"))
    assert (result.code, list(tmp_path.glob("out*/"))) == (1, [])
    assert "is a table; write its texts as JSON lines" in result.err


def test_output_that_is_no_corpus_is_kept(shell: Shell, baseline: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    sources.packed(mine / "notes.txt", b"important")
    (mine / "corpus.json").write_text('{"name": "mine"}')
    for options, message in (([], "exists already"), (["--force"], "is no corpus")):
        result = shell("corpus", str(baseline), "-o", str(mine), *options)
        assert result.code == 1
        assert message in result.err
    assert (mine / "notes.txt").read_bytes() == b"important"


def test_benchmarks_are_never_overwritten(shell: Shell, baseline: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sources.packed(out / "data" / "test.tsv", b"id\ttext\n1\tA sentence of the test split.\n")
    (out / "corpus.json").write_text('{"shards": []}')
    result = shell("corpus", str(baseline), "-o", str(out), "--against", str(out / "data"), "--force")
    assert result.code == 1 and "is the input itself or contains it" in result.err
    assert (out / "data" / "test.tsv").is_file()


def test_inspect_counts_documents_and_repeated_texts(shell: Shell, tmp_path: Path) -> None:
    sources.packed(tmp_path / "a.txt", b"One two.\nThree.\n\nFour five six.\n\none TWO.\nThree.\n")
    facts = json.loads(shell("corpus inspect a.txt --json").out)
    assert (facts["documents"], facts["sentences"], facts["words"]) == (3, 5, 9)
    assert (facts["repeated_documents"], facts["repeated_sentences"]) == (1, 2)
    assert facts["words_by_document"]["median"] == 3
    assert sum(facts["histogram"].values()) == facts["histogram"]["0 to 24"] == 3
    shown = shell("corpus inspect a.txt")
    assert "repeated sentences" in shown.out
    lines = sources.packed(tmp_path / "b.txt", b"One.\nTwo.\n")
    assert json.loads(shell("corpus inspect", lines, "--json").out)["documents"] == 2


def test_inspect_counts_as_the_manifest_does(shell: Shell, tmp_path: Path) -> None:
    sources.packed(tmp_path / "a.txt", "One two.\nThr\u00e9e.\n\nFour.\n".encode())
    assert shell("corpus", tmp_path / "a.txt", "-o", tmp_path / "out", "--workers", "1").code == 0
    counts = manifest_of(tmp_path / "out")["train"]
    facts = json.loads(shell("corpus", "inspect", tmp_path / "out", "--json").out)
    assert counts == {name: facts[name] for name in ("documents", "sentences", "words", "bytes")}


@pytest.mark.parametrize(
    ("options", "message"),
    [(["a.txt", "b.txt"], "one corpus"), (["a.txt", "--strict"], "--strict"), (["demo:nothing"], "demo:text")],
)
def test_inspect_refuses(shell: Shell, tmp_path: Path, options: list[str], message: str) -> None:
    sources.packed(tmp_path / "a.txt", b"One.\n")
    refused = shell("corpus", "inspect", *options)
    assert refused.code == 2
    assert message in refused.err


def test_out_is_needed(shell: Shell, baseline: Path) -> None:
    refused = shell("corpus", baseline)
    assert refused.code == 2
    assert "--out" in refused.err


def test_articles_outside_the_length_are_dropped(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One two.\nOne two three.\nOne two three four five.\n")
    options = ["corpus", str(tmp_path / "a.txt"), "-o", str(tmp_path / "out"), "--workers", "1", "--min-words", "3"]
    assert "below --min-words" in shell(*options, "--max-words", "2").err
    assert shell(*options, "--max-words", "4").code == 0
    assert documents(tmp_path / "out") == ["One two three."]
    assert manifest_of(tmp_path / "out")["dropped"] == {"too short": 1, "too long": 1}


def test_nothing_is_left_beside_the_corpus(shell: Shell, tmp_path: Path) -> None:
    sources.packed(tmp_path / "a.txt", b"One two.\n")
    assert shell("corpus", tmp_path / "a.txt", "-o", tmp_path / "made" / "out", "--workers", "1").code == 0
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["out"]


def test_plain_text_is_kept_whatever_the_parts(shell: Shell, baseline: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One two.\nThree.\n\nFour.\n")
    options = ["-o", str(tmp_path / "out"), "--workers", "1", "--keep", "title"]
    assert shell("corpus", str(tmp_path / "a.txt"), str(baseline), *options).code == 0
    assert documents(tmp_path / "out") == ["One two.\nThree.", "Four.", "A title."]


def test_a_sample_of_a_kind_that_is_absent(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One two.\nOne two three.\n")
    options = ["corpus", str(tmp_path / "a.txt"), "-o", str(tmp_path / "out"), "--workers", "1"]
    said = shell(*options, "--sample", "pubmed=1")
    assert (said.code, len(documents(tmp_path / "out"))) == (0, 2)
    assert "no article of the kind pubmed, only text" in " ".join(said.err.split())


def test_nothing_but_a_damaged_file_is_said_so(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text("<PubmedArticleSet><PubmedArticle>")
    result = shell("corpus", str(tmp_path / "a.xml"), "-o", str(tmp_path / "out"), "--workers", "1")
    assert result.code == 1 and not (tmp_path / "out").exists()
    assert "no article is left of 0 read (1 damaged files)" in result.err
