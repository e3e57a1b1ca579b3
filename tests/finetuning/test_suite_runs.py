"""The benchmarks of a suite that are found, and the options that they are run with."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from biosqueeze.benchmarks.suite import load_suite, suite_names
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.finetuning.suite_runs import find_benchmarks, paper_options
from biosqueeze.tasks import open_task

WITH_DEV = {"with_dev": True, "dev_share": 0.25}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Write NCBI-disease without a dev split."""
    (tmp_path / "NCBI-disease").mkdir()
    for split in ("train", "test"):
        (tmp_path / "NCBI-disease" / f"{split}.tsv").write_text(f"{split}\tO\nlupus\tB-Disease\n\nthe\tO\n")
    return tmp_path


@pytest.mark.parametrize(("given", "share"), [({}, 0.1), (WITH_DEV, 0.25)])
def test_without_a_dev_split_train_is_divided(
    given: Mapping[str, Any], share: float, root: Path, capsys: pytest.CaptureFixture
) -> None:
    (found,), _ = find_benchmarks(load_suite("blurb"), root, ["ncbi-disease"], {"": given})
    assert found.options["dev_share"] == share
    assert "with_dev" not in found.options
    assert f"so {share:.0%} of train is held out as dev" in capsys.readouterr().err
    assert f"so {share:.0%} of train is held out as dev" in found.data_facts.note


@pytest.mark.parametrize(("given", "left"), [({"dev_share": 0.2}, 8), (WITH_DEV, 9)])
def test_what_is_held_out_is_not_trained_on(given: Mapping[str, Any], left: int, root: Path) -> None:
    """The rest is what --train-size is checked against."""
    for split, count in (("train", 10), ("dev", 2)):
        rows = "".join(f"{split}\tO\n{n}\tB-Disease\n\n" for n in range(count))
        (root / "NCBI-disease" / f"{split}.tsv").write_text(rows)
    (found,), _ = find_benchmarks(load_suite("blurb"), root, ["ncbi-disease"], {"": given})
    assert found.data_facts.examples == left


def test_the_metric_is_that_of_the_benchmark() -> None:
    """Also where it is the default of texts with one label, and the data may have several."""
    several = replace(load_suite("blurb")["hoc"], metric="macro_f1")
    for benchmark in (several, *(each for name in suite_names() for each in load_suite(name).benchmarks)):
        given = paper_options(benchmark).get("metric")
        assert (given or open_task(benchmark.kind).METRIC) == benchmark.metric
        assert given or benchmark.kind != "classification"


def test_a_damaged_dev_split_is_no_missing_one(root: Path, capsys: pytest.CaptureFixture) -> None:
    (root / "NCBI-disease" / "dev.tsv").write_text("the\n")
    with pytest.raises(SqueezeError, match="can be run; the warnings say why"):
        find_benchmarks(load_suite("blurb"), root, ["ncbi-disease"], {})
    said = capsys.readouterr().err
    assert "dev.tsv" in said and "held out" not in said


def test_an_unfit_option_is_no_missing_split(root: Path, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SqueezeError, match="can be run; the warnings say why"):
        find_benchmarks(load_suite("blurb"), root, [], {"": {"types": ("Gene",)}})
    assert "left out: --types: the data have no entity of the type 'Gene'" in capsys.readouterr().err
    with pytest.raises(SqueezeError, match="none of blurb's benchmarks is under"):
        find_benchmarks(load_suite("blurb"), root, ["hoc"], {})


def test_an_unfit_option_of_one_benchmark_is_an_error(root: Path) -> None:
    overrides = {"ncbi-disease": {"types": ("Diseases",)}}
    with pytest.raises(UsageError, match=r"--set for ncbi-disease: --types: .* Did you mean 'Disease'\?"):
        find_benchmarks(load_suite("blurb"), root, [], overrides)


@pytest.mark.parametrize(
    ("suite", "folds", "note"),
    [
        ("bioformer", ("1", "3"), "folds missing: 2, 4, 5, 6, 7, 8, 9, 10; used: 1, 3;"),
        ("bioformer", (".",), "a single division into train and test, where the paper has 10 folds;"),
        ("compact", ("2", "3"), "folds missing: 1; used: 2;"),
        ("compact", ("1",), "there is no dev split"),
    ],
)
def test_missing_folds_are_noted(
    suite: str, folds: tuple[str, ...], note: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    for fold in folds:
        (tmp_path / "GAD" / fold).mkdir(parents=True)
        for split in ("train", "test"):
            rows = "".join(f"@GENE$ {i} {fold} @DISEASE$ in {split} .\t{i % 2}\n" for i in range(20))
            (tmp_path / "GAD" / fold / f"{split}.tsv").write_text(rows)
    (found,), _ = find_benchmarks(load_suite(suite), tmp_path, ["gad"], {})
    assert found.data_facts.note.startswith(note)
    assert f": {note.rstrip(';')}" in " ".join(capsys.readouterr().err.split())
