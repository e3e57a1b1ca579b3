"""Splits that are folders of several files."""

import gzip
from pathlib import Path

import pytest

from biosqueeze.data.records.sample import available_splits
from biosqueeze.errors import SqueezeError
from tests.tasks.test_unusual_layouts import guess_of, lay_out, read


def test_several_files_in_the_folder_of_a_split(tmp_path: Path) -> None:
    lay_out(tmp_path, {f"{split}/{name}.tsv": "Gout\tB-Disease\n" for split in ("train", "test") for name in "ab"})
    with pytest.raises(SqueezeError, match=r"train and test hold .*several files each: join them"):
        guess_of(tmp_path)


def tagged(word: str) -> str:
    """Return two sentences of columns."""
    return f"{word}\tB-Gene\nin\tO\nmice\tO\n\nNo\tO\nother\tO\n"


@pytest.mark.parametrize("suffix", [".conll", ".iob2.gz"])
def test_columns_of_words_in_several_files(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As AnatEM has them: a file for each document."""
    files = {f"{folder}/{name}{suffix}": tagged(folder + name) for folder in ("train", "devel") for name in "ba"}
    lay_out(tmp_path, files)
    for name in files if suffix.endswith(".gz") else ():
        (tmp_path / name).write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    assert guess_of(tmp_path) == "ner"
    splits = read("ner", tmp_path).splits
    assert [each.words[0] for each in splits["train"]] == ["traina", "No", "trainb", "No"]
    assert [each.words[0] for each in splits["dev"]] == ["devela", "No", "develb", "No"]
    assert "train is train, dev is devel (2 files of columns: word first, tag last)" in " ".join(
        capsys.readouterr().err.split()
    )
    assert available_splits(str(tmp_path)) == ("train", "dev")


def test_words_without_tags_in_several_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {f"{split}/{name}.conll": tagged(split + name) for split in ("train", "dev") for name in "ab"}
    lay_out(tmp_path, {**files, "test/a.conll": "TP53\nof\n", "test/b.conll": "mice\n"})
    assert len(read("ner", tmp_path).splits["train"]) == 4
    assert "test has no tags" in capsys.readouterr().err
    lay_out(tmp_path, {"dev/b.conll": "TP53\tB-Gene\nof\n"})
    with pytest.raises(SqueezeError, match=r"dev/b.conll:2: no tag beside 'of'"):
        read("ner", tmp_path)
