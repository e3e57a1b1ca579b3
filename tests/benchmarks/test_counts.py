"""Data sets are counted, and differences from the papers' counts are described."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from biosqueeze import registry
from biosqueeze.benchmarks import suite as suites
from biosqueeze.benchmarks.counts import count, count_differences, warn_of_counts
from biosqueeze.benchmarks.directories import locate
from biosqueeze.tasks import Dataset
from tests.tasks.test_ner_real import COUNTS


def dataset(**golds: list[object]) -> Dataset:
    made = {split: tuple(SimpleNamespace(gold=gold) for gold in some) for split, some in golds.items()}
    return Dataset(made, (), "BIO")


def test_counting() -> None:
    tags = dataset(train=[("B-X", "I-X", "B-X", "O"), ("O", "I-Y")], test=[("O",)])
    assert count(tags, "entities") == {"train": 3, "test": 0}
    assert count(tags, "words") == {"train": 4, "test": 0}
    assert count(tags, "sentences") == count(tags, "examples") == {"train": 2, "test": 1}


def test_counting_relations() -> None:
    made = Dataset(
        dataset(train=["false", "CPR:3", "other", "CPR:9"]).splits, ("false", "CPR:3", "CPR:9", "other"), "single"
    )
    assert count(made, "relations") == {"train": 3}
    assert count(made, "relations", "other") == {"train": 3}
    assert count(made, "examples") == {"train": 4}


def test_differences_have_numbers() -> None:
    benchmark = suites.find_benchmark("blurb/ncbi-disease")
    assert count_differences(benchmark, {"train": 5134, "dev": 787, "test": 960}) == []
    assert count_differences(benchmark, {"train": 5100, "test": 970}) == [
        "train has 5,100 entities where the paper counts 5,134 (34 fewer, 0.7%)",
        "test has 970 entities where the paper counts 960 (10 more, 1.0%)",
    ]


def test_total_count_needs_all_splits() -> None:
    benchmark = suites.find_benchmark("biolm/bc2gm")
    assert count_differences(benchmark, {"train": 15197, "dev": 3061}) == []
    assert count_differences(benchmark, {"train": 15197, "dev": 3061, "test": 6325}) == []
    (said,) = count_differences(benchmark, {"train": 15197, "test": 6325})
    assert said.startswith("the data have 21,522 entities where the paper counts 24,583 (3,061 fewer")


def test_differences_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    made = dataset(train=[("B-X", "O")] * 4182, dev=[("B-X",)] * 4246)
    assert len(warn_of_counts(suites.find_benchmark("blurb/bc5-disease"), made)) == 1
    said = capsys.readouterr().err
    assert "blurb/bc5-disease: dev has 4,246" in said and "2 more, 0.0%" in said
    assert warn_of_counts(suites.find_benchmark("biolm/i2b2-2010"), made) == []
    assert capsys.readouterr().err == ""


@pytest.mark.real
def test_entities_of_the_real_files(real_data: Path) -> None:
    benchmark = suites.find_benchmark("blurb/ncbi-disease")
    found = locate(benchmark, real_data)
    assert found is not None
    data = registry.load("tasks", benchmark.kind).Kind().read(str(found), ("train", "dev", "test"))
    assert count_differences(benchmark, count(data, benchmark.unit)) == []


@pytest.mark.parametrize(
    ("key", "name", "differing"),
    [("bc5-chem", "bc5cdr-chem", 0), ("bc5-disease", "bc5cdr-disease", 1), ("bc2gm", "bc2gm", 0)],
)
def test_paper_counts_are_those_of_the_readmes(key: str, name: str, differing: int) -> None:
    """The entities of the real files, which test_ner_real counts, against the paper's."""
    counts = {split: entities for split, (_, _, entities) in COUNTS[name].items()}
    assert len(count_differences(suites.find_benchmark(f"blurb/{key}"), counts)) == differing
