import bz2
import gzip
import lzma
import tarfile
from pathlib import Path
from typing import Literal

import pytest

from biosqueeze.data import lines
from biosqueeze.data.lines import numbered_lines, read_beginning, read_document, stdin_lines, tolerant_lines
from biosqueeze.errors import SqueezeError
from biosqueeze.files import parsing
from tests.standard_input import pipe_in

MEGABYTE = 1 << 20


@pytest.fixture
def one_megabyte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(parsing.VARIABLE, "1")


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_only_line_ends_and_the_byte_order_mark_go(tmp_path, name):
    data = "\ufeff a\t\r\n\nb \u2028c\x0b\n\r\n\ufefflast".encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    lines = list(numbered_lines(tmp_path / name))
    assert lines == [(1, " a\t"), (2, ""), (3, "b \u2028c\x0b"), (4, ""), (5, "\ufefflast")]


def test_an_unreadable_path_is_explained(tmp_path):
    with pytest.raises(SqueezeError, match=r"gone\.tsv cannot be read \(No such file"):
        list(numbered_lines(tmp_path / "gone.tsv"))


def test_a_directory_is_explained(tmp_path):
    with pytest.raises(SqueezeError, match="cannot be read"):
        list(numbered_lines(tmp_path))


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_line_above_the_limit_is_an_error(tmp_path: Path, one_megabyte: None, name: str) -> None:
    data = b"first\n" + b"x" * MEGABYTE + b"\nlast\n"
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    reading = numbered_lines(tmp_path / name)
    assert next(reading) == (1, "first")
    with pytest.raises(SqueezeError, match=rf"{name}:2: the line is longer than 1 MB.*--max-record-mb 2"):
        next(reading)


def test_a_line_of_the_limit_is_read(tmp_path: Path, one_megabyte: None) -> None:
    (tmp_path / "a.txt").write_bytes(b"x" * (MEGABYTE - 1) + b"\n" + b"y" * MEGABYTE)
    assert [len(line) for _, line in numbered_lines(tmp_path / "a.txt")] == [MEGABYTE - 1, MEGABYTE]


def test_a_line_has_its_end_as_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\n\r\ncaf\xe9\r\nlast")
    assert [line.end for line in tolerant_lines(tmp_path / "a.txt")] == ["\r\n", "\n", "\r\n", "\n", ""]


def test_lines_after_one_that_is_too_long_are_read(tmp_path: Path, one_megabyte: None) -> None:
    (tmp_path / "a.txt").write_bytes(b"first\n" + b"x" * (3 * MEGABYTE) + b"\nlast")
    first, long, last = tolerant_lines(tmp_path / "a.txt")
    assert (first.text, last.number, last.text) == ("first", 3, "last")
    assert "the line is longer than 1 MB" in str(long.error)
    assert len(long.text) < 10_000


def test_a_line_without_end_ends_the_reading(one_megabyte: None) -> None:
    reading = tolerant_lines(Path("/dev/zero"))
    assert next(reading).error
    with pytest.raises(SqueezeError, match="/dev/zero:1: the line has no end"):
        next(reading)


def test_gzip_that_unpacks_to_far_more_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_RATIO_FROM_LINES", 0.5)
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress((b" " * 65_535 + b"\n") * 32))
    with pytest.raises(SqueezeError, match=r"a\.txt\.gz unpacks to more than 500 times its size.*--max-record-mb 16"):
        list(numbered_lines(path))
    pipe_in(monkeypatch, path.read_bytes())
    with pytest.raises(SqueezeError, match="standard input unpacks to more than 500 times"):
        list(stdin_lines())


def test_a_sentence_that_is_repeated_may_be_gzipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_RATIO_FROM_LINES", 0.5)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"Aspirin reduces fever in adults.\n" * 200_000))
    assert sum(1 for _ in numbered_lines(tmp_path / "a.txt.gz")) == 200_000


def test_a_document_above_the_limit_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "DOCUMENT_MEGABYTES", 1)
    (tmp_path / "a.json").write_text("[\n" + "1,\n" * MEGABYTE + "1]")
    with pytest.raises(SqueezeError, match=r"a\.json is longer than 1 MB"):
        read_document(tmp_path / "a.json")


def test_the_beginning_of_a_bomb_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"x" * (64 * MEGABYTE)))
    assert read_beginning(tmp_path / "a.txt.gz", 100) == "x" * 100


@pytest.mark.parametrize("name", ["a.txt.gz", "a.TXT.GZ", "a.txt"])
def test_gzip_is_told_by_its_content(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"one\ntwo\n"))
    assert list(numbered_lines(path)) == [(1, "one"), (2, "two")]


@pytest.mark.parametrize(
    ("packed", "command"),
    [
        (bz2.compress(b"one\n"), "bzip2 -dc"),
        (lzma.compress(b"one\n"), "xz -dc"),
        (b"PK\x03\x04\x14\0", "unzip -p"),
        (b"\x28\xb5\x2f\xfd\x04", "zstd -dc"),
    ],
)
def test_other_packers_are_named(packed: bytes, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(packed)
    with pytest.raises(SqueezeError, match=f"only .gz is read; unpack it first: {command}"):
        list(numbered_lines(path))
    pipe_in(monkeypatch, packed)
    with pytest.raises(SqueezeError, match=f"standard input is packed, .* unpack it first: {command} FILE in the pipe"):
        list(stdin_lines())


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_an_archive_of_files_is_named(mode: Literal["w", "w:gz"], tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("one\n")
    with tarfile.open(tmp_path / "all.tar.gz", mode, format=tarfile.PAX_FORMAT) as archive:
        archive.add(tmp_path / "one.txt", "one.txt")
    plain = tmp_path / "all.txt"
    (tmp_path / "all.tar.gz").rename(plain)
    with pytest.raises(SqueezeError, match=r"all\.txt is a tar archive; unpack it \(tar -xf\), and name a file in it"):
        list(numbered_lines(plain))
    assert "is a tar archive" in str(next(tolerant_lines(plain)).error)


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl.gz"])
def test_what_git_lfs_did_not_fetch_is_no_data(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
    with pytest.raises(SqueezeError, match="is a Git LFS pointer and not the data; run `git lfs pull` there"):
        list(numbered_lines(tmp_path / name))
