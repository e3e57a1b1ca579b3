"""`biosqueeze corpus` of archives: damaged files in them, damaged archives, supplements; memory of many articles."""

import csv
import gzip
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from biosqueeze.corpora.parts import Part, write_part
from biosqueeze.corpora.settings import CorpusSettings
from biosqueeze.corpora.sources import SourceFile, open_source, read_source
from tests.cli.run import Shell
from tests.corpora import sources
from tests.corpora.built import documents, manifest_of

JATS = "<article><front><article-meta><article-id pub-id-type='pmc'>{0}</article-id></article-meta></front><body><p>"


def full_text(number: int) -> str:
    return f"{JATS.format(number)}Text {number}.</p></body></article>"


def lines_of(folder: Path) -> list[str]:
    return [line for document in documents(folder) for line in document.split("\n") if line]


def test_a_damaged_file_in_an_archive_is_skipped_alone(shell: Shell, tmp_path: Path) -> None:
    records = '{"text": "Before the damage."}\n{"text": '
    update = f"<PubmedArticleSet>{sources.citation(7, 'New.', kind='Retracted Publication')}<DeleteCitation>"
    members = {f"a/PMC{number}.xml": full_text(number) for number in range(1, 8)}
    members["a/PMC3.xml"] = full_text(3)[:-20]
    members |= {"b.jsonl": records, "c.xml": f"{update}<PMID>8</PMID></DeleteCitation>", "d.jsonl": '{"text": "Last."}'}
    path = sources.archive(tmp_path / "oa.tar.gz", members)
    old = sources.pubmed(tmp_path / "old.xml", [sources.citation(number, f"Old {number}.") for number in (7, 8)])
    command = ("corpus", old, path, "-o", tmp_path / "out", "--workers", "1", "--keep", "abstract,body")
    result = shell(*command, "--drop-retracted")
    assert result.code == 0, result.err
    said = " ".join(result.err.split())
    assert f"{path}:a/PMC3.xml is damaged and was skipped: invalid XML" in said
    assert f"{path}:b.jsonl is damaged" in said and f"{path}:c.xml is damaged" in said
    kept = [f"Text {number}." for number in (1, 2, 4, 5, 6, 7)]
    assert lines_of(tmp_path / "out") == ["Old 7.", "Old 8.", *kept, "Last."]
    manifest = manifest_of(tmp_path / "out")
    assert (manifest["articles"], manifest["damaged_files"], manifest["dropped"]) == (9, 3, {})
    assert manifest["sources"]["files"] == 2
    table = gzip.decompress((tmp_path / "out" / "sources.tsv.gz").read_bytes()).decode().splitlines()
    named = {row["path"]: row["damage"] for row in csv.DictReader(table, delimiter="\t")}
    assert named[str(path)] == "" and named[f"{path}:a/PMC3.xml"].startswith("invalid XML")
    strict = shell(*command, "--force", "--strict")
    assert strict.code == 1 and f"{path}:a/PMC3.xml: invalid XML" in " ".join(strict.err.split())


def test_packed_files_in_an_archive_may_be_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    sources.packed(folder / "1.nxml.gz", full_text(1).encode())
    whole = gzip.compress(full_text(2).encode())
    (folder / "2.nxml.gz").write_bytes(whole[:-12])
    (folder / "3.nxml").write_text(full_text(3))
    path = packed_folder(folder, tmp_path / "oa.tar")
    with open_source(SourceFile.of(path), lambda _: None) as file:
        read = list(read_source(file, path, "text"))
    assert [getattr(item, "body", None) or getattr(item, "damage", None) is None for item in read] == [
        ("Text 1.",), True, False, ("Text 3.",), True,
    ]  # fmt: skip


def packed_folder(folder: Path, path: Path) -> Path:
    with tarfile.open(path, "w") as tar:
        for file in sorted(folder.iterdir()):
            tar.add(file, file.name)
    return path


CUTS: dict[str, Callable[[bytes], bytes]] = {
    "oa.tar": lambda content: content[: 4 * 1024],  # between two files
    "header.tar": lambda content: content[:2048] + b"x" * 512 + content[2560:],
    "oa.tar.gz": lambda content: content[: len(content) // 2],
}


@pytest.mark.parametrize("name", CUTS)
def test_a_damaged_archive_is_skipped(name: str, shell: Shell, tmp_path: Path) -> None:
    for number in range(9):
        sources.packed(tmp_path / "in" / f"{number}.nxml", full_text(number).encode())
    content = packed_folder(tmp_path / "in", tmp_path / "whole").read_bytes()
    path = tmp_path / name
    path.write_bytes(CUTS[name](gzip.compress(content) if name.endswith(".gz") else content))
    (tmp_path / "a.txt").write_text("Alone.\n")
    result = shell("corpus", path, tmp_path / "a.txt", "-o", tmp_path / "out", "--workers", "1")
    assert result.code == 0, result.err
    assert f"{path} is damaged and was skipped" in " ".join(result.err.split())
    assert lines_of(tmp_path / "out") == ["Alone."]


def test_text_beside_a_full_text_is_a_supplement(shell: Shell, tmp_path: Path) -> None:
    members = {"PMC1/s1.txt": "No.", "PMC1/1.nxml": full_text(1), "PMC1/s2.txt": "No.", "texts/PMC2.txt": "Own text."}
    path = sources.archive(tmp_path / "PMC1.tar.gz", members)
    assert shell("corpus", path, "-o", tmp_path / "out", "--workers", "1").code == 0
    assert lines_of(tmp_path / "out") == ["Text 1.", "Own text."]


def test_deletions_of_a_damaged_file_do_not_count(shell: Shell, tmp_path: Path) -> None:
    old = sources.pubmed(tmp_path / "1.xml", [sources.citation(1, "Kept.")])
    cut = sources.pubmed(tmp_path / "2.xml", [], deleted=[1])
    cut.write_text(cut.read_text()[:-10])
    assert shell("corpus", old, cut, "-o", tmp_path / "out", "--workers", "1", "--keep", "abstract").code == 0
    assert lines_of(tmp_path / "out") == ["Kept."]


def peak_of(read: Callable[[], Any]) -> int:
    tracemalloc.start()
    read()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_does_not_grow_with_the_articles(tmp_path: Path) -> None:
    settings = CorpusSettings(near_duplicates=0.8)
    peaks = []
    for number, count in enumerate((1000, 1000, 5000)):  # the first one imports modules
        path = tmp_path / f"{number}.jsonl"
        path.write_text("".join(f'{{"id": {n}, "text": "Text {n} is here."}}\n' for n in range(count)))
        part = Part(number, (SourceFile.of(path),), tmp_path)
        peaks.append(
            peak_of(lambda part=part: write_part(part, lambda _: None, settings=settings, against=None, strict=False))
        )
    assert peaks[2] < peaks[1] + 500_000


def test_memory_does_not_grow_with_an_archive(tmp_path: Path) -> None:
    peaks = []
    for count in (500, 3000):
        path = tmp_path / f"{count}.tar"
        with tarfile.open(path, "w") as tar:  # equal files would be packed to almost nothing, and unpacked at once
            for number in range(count):
                tar.addfile(tarfile.TarInfo(f"folder/figure{number}.jpg"))
        with open_source(SourceFile.of(path), lambda _: None) as file:
            peaks.append(peak_of(lambda file=file, path=path: list(read_source(file, path, "text"))))
    assert peaks[1] < peaks[0] + 500_000


def test_a_built_corpus_as_a_source_is_its_train_share(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"Text {number} is here.\n" for number in range(60)))
    built, again = tmp_path / "built", tmp_path / "again"
    assert shell("corpus", tmp_path / "a.txt", "-o", built, "--workers", "1", "--held-out", "0.3").code == 0
    result = shell("corpus", built, "-o", again, "--workers", "1")
    assert result.code == 0 and "built is a built corpus" in " ".join(result.err.split())
    assert manifest_of(built)["held-out"]["documents"] > 0
    assert lines_of(again) == lines_of(built)


def test_a_built_corpus_of_one_document_stays_one(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "One sentence is here. Another sentence follows."}\n')
    built, again = tmp_path / "built", tmp_path / "again"
    assert shell("corpus", tmp_path / "a.jsonl", "-o", built, "--workers", "1").code == 0
    assert shell("corpus", built, "-o", again, "--workers", "1").code == 0
    assert documents(again) == documents(built) == ["One sentence is here.\nAnother sentence follows."]
