"""The directories of benchmarks are found under the usual names."""

from pathlib import Path

import pytest

from biosqueeze.benchmarks import suite as suites
from biosqueeze.benchmarks.directories import locate


def place(path: Path, name: str = "train.tsv") -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / name).write_text("x\tO\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "folder", ["ncbi-disease", "NCBI-disease", "NCBI-disease-IOB", "NCBI_disease", "blurb/ncbi-disease"]
)
def test_locate_finds_the_usual_folders(folder: str, tmp_path: Path) -> None:
    benchmark = suites.find_benchmark("blurb/ncbi-disease")
    assert locate(benchmark, tmp_path) is None
    assert locate(benchmark, tmp_path / "nowhere") is None
    wanted = place(tmp_path / folder)
    assert locate(benchmark, tmp_path) == wanted


def test_locate_skips_folders_without_data(tmp_path: Path) -> None:
    benchmark = suites.find_benchmark("blurb/hoc")
    place(tmp_path / "hoc", "README.md")
    place(tmp_path / "hoc", "LICENSE")
    assert locate(benchmark, tmp_path) is None
    wanted = place(tmp_path / "hoc" / "blurb")
    assert locate(benchmark, tmp_path) == wanted


def test_locate_takes_the_paper_s_version_first(tmp_path: Path) -> None:
    plain, blurb = place(tmp_path / "jnlpba"), place(tmp_path / "jnlpba" / "blurb")
    assert locate(suites.find_benchmark("blurb/jnlpba"), tmp_path) == blurb
    assert locate(suites.find_benchmark("biolm/jnlpba"), tmp_path) == plain


def test_locate_finds_folds(tmp_path: Path) -> None:
    place(tmp_path / "GAD" / "1")
    assert locate(suites.find_benchmark("biolm/gad"), tmp_path) == tmp_path / "GAD"
    assert locate(suites.find_benchmark("blurb/gad"), tmp_path) is None
