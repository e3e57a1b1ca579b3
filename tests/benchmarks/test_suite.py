"""The transcribed tables add up to the papers' own averages, and data are found and counted."""

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest

from biosqueeze import registry
from biosqueeze.benchmarks import suite as suites
from biosqueeze.benchmarks.suite import Benchmark
from biosqueeze.errors import UsageError
from biosqueeze.tasks import Dataset, Formulation, open_task
from biosqueeze.tasks.metrics.answers import Answers

SUITES = {name: suites.load_suite(name) for name in suites.names()}
BENCHMARKS = [benchmark for suite in SUITES.values() for benchmark in suite.benchmarks]
# What a mean of printed numbers may be off by: half of the last digit of the mean, and as much again where the paper
# rounds what it did not print.
ROUNDING = {"blurb": 0.0051, "biolm": 0.071, "bioformer": 0.0075}


def test_suite_names() -> None:
    sizes = {name: len(suite.benchmarks) for name, suite in SUITES.items()}
    # The compact paper's ten data sets are eleven scores: BC5CDR has one for diseases and one for chemicals.
    assert sizes == {"blurb": 13, "biolm": 18, "bioformer": 15, "compact": 11}
    assert len({benchmark.key for benchmark in BENCHMARKS}) == len(BENCHMARKS)


@pytest.mark.parametrize("name", sorted(ROUNDING))
def test_published_scores_give_the_printed_averages(name: str) -> None:
    suite = SUITES[name]
    checked = 0
    for average in suite.averages:
        for model in suite.models:
            scores = {benchmark.name: benchmark.mean_row(model) for benchmark in suite.benchmarks}
            assert average.of(scores) == pytest.approx(average.printed[model], abs=ROUNDING[name]), model
            assert not average.missing(scores)
            checked += 1
    assert checked == len(suite.averages) * len(suite.models) > 0


def test_compact_means_equal_the_abstract_s() -> None:
    suite = SUITES["compact"]
    ner = suite.averages[0]
    mean = {m: ner.of({b.name: b.published_score(m) for b in suite.benchmarks}) for m in suite.models}
    retained = {model: mean[model] / mean["BioBERT-v1.1"] for model in suite.models}
    assert retained["BioMobileBERT"] == pytest.approx(0.982, abs=5e-4)  # "up to 98.2%" of the best below 30M
    assert 0.988 < min(retained["DistilBioBERT"], retained["CompactBioBERT"]) < 0.99  # "up to 98.8%"
    assert suite["bioasq-7b"].published[2].scores["BioMobileBERT"] == 32.90


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda benchmark: benchmark.key)
def test_benchmark_fields_are_valid(benchmark: Benchmark) -> None:
    suite = SUITES[benchmark.suite]
    assert all(tuple(row.scores) == suite.models for row in benchmark.published)
    assert all(0 < score < 100 for row in benchmark.published for score in row.scores.values())
    assert benchmark.metric in {row.metric for row in benchmark.published}
    assert benchmark.access in ("open", "registration", "agreement")
    assert benchmark.licence and benchmark.paper_metric
    assert all(source.startswith(("https://", "http://")) for source in benchmark.sources)
    assert bool(benchmark.counts) == bool(benchmark.unit)
    assert set(benchmark.counts) <= {"train", "dev", "test", suites.WHOLE}
    assert not benchmark.unit or benchmark.unit in suites.UNITS
    assert set(benchmark.formulation) <= {field.name for field in fields(Formulation)}
    hyper = benchmark.hyper
    assert hyper.learning_rates and hyper.batch_sizes and hyper.runs >= 1 and hyper.reported


GOLD = {
    "ner": ("B-X", "O"),
    "pico": ("B-PAR", "O"),
    "relation": "positive",
    "classification": frozenset({"a"}),
    "similarity": 1.0,
    "nli": "yes",
    "qa": Answers(("a",)),
}


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda benchmark: benchmark.key)
def test_the_kind_has_the_metrics(benchmark: Benchmark) -> None:
    task = open_task(benchmark.kind, scheme="multi" if benchmark.kind == "classification" else "")
    gold = [GOLD[benchmark.kind]] * 3
    assert {row.metric for row in benchmark.published} <= task.score(gold, gold).keys()


@pytest.mark.parametrize("suite", SUITES.values(), ids=lambda suite: suite.name)
def test_suite_fields_are_valid(suite: suites.Suite) -> None:
    assert suite.total.missing({}) == tuple(b.name for b in sorted(suite.benchmarks, key=lambda b: _order(suite, b)))
    assert suite.path.is_file() and suite.path.stem == suite.name
    assert suite.total.of({}) is None


def _order(suite: suites.Suite, benchmark: Benchmark) -> int:
    return suite.total.missing({}).index(benchmark.name)


def test_the_published_score_is_in_the_metric_of_the_benchmark() -> None:
    """And not a mean over metrics; of Bioformer's settings the one without SQuAD, as a benchmark is run."""
    benchmark = suites.find("bioformer/bioasq-7b")
    assert benchmark.published_score("Bioformer-8L") == 41.61
    assert benchmark.mean_row("Bioformer-8L") == pytest.approx(46.51, abs=0.01)
    assert suites.find("compact/bioasq-7b").published_score("TinyBioBERT") == 25.05
    assert suites.find("blurb/hoc").published_score("BioBERT") == 81.54


def test_table_3_of_blurb() -> None:
    """Typed a second time, by hand, from the paper."""
    counts = {b.name: tuple(b.counts[split] for split in ("train", "dev", "test")) for b in SUITES["blurb"].benchmarks}
    assert counts == {
        "bc5-chem": (5203, 5347, 5385),
        "bc5-disease": (4182, 4244, 4424),
        "ncbi-disease": (5134, 787, 960),
        "bc2gm": (15197, 3061, 6325),
        "jnlpba": (46750, 4551, 8662),
        "ebm-pico": (339167, 85321, 16364),
        "chemprot": (18035, 11268, 15745),
        "ddi": (22233, 5559, 5716),
        "gad": (4261, 534, 535),
        "biosses": (64, 16, 20),
        "hoc": (1295, 186, 371),
        "pubmedqa": (450, 50, 500),
        "bioasq": (670, 75, 140),
    }


def test_the_blurb_score_is_a_mean_of_six_means() -> None:
    total = SUITES["blurb"].total
    assert sorted(map(len, total.groups)) == [1, 1, 1, 2, 3, 5]
    scores = {"bc5-chem": 90.0, "bc2gm": 80.0, "hoc": 75.0}
    assert total.of(scores) == pytest.approx((85.0 + 75.0) / 2)
    assert len(total.missing(scores)) == 10


def test_find_and_resolve() -> None:
    benchmark = suites.find("blurb/ncbi-disease")
    assert (benchmark.title, benchmark.key) == ("NCBI-disease", "blurb/ncbi-disease")
    assert suites.resolve("blurb/ncbi-disease") == ("ner", benchmark)
    assert suites.resolve("ner") == ("ner", None)


@pytest.mark.parametrize(
    ("task", "says"),
    [
        ("nre", "Did you mean 'ner'?"),
        ("blrub/hoc", "Did you mean 'blurb'?"),
        ("blurb/ncbi-diseases", "Did you mean 'blurb/ncbi-disease'?"),
        ("ncbi_disease", "'blurb/ncbi-disease'"),
        ("biolm/", "has no benchmark"),
        ("utterly-unknown", "biosqueeze tasks"),
    ],
)
def test_a_wrong_name_is_explained(task: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        suites.resolve(task)
    assert says in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def place(path: Path, name: str = "train.tsv") -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / name).write_text("x\tO\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "folder", ["ncbi-disease", "NCBI-disease", "NCBI-disease-IOB", "NCBI_disease", "blurb/ncbi-disease"]
)
def test_locate_finds_the_usual_folders(folder: str, tmp_path: Path) -> None:
    benchmark = suites.find("blurb/ncbi-disease")
    assert suites.locate(benchmark, tmp_path) is None
    assert suites.locate(benchmark, tmp_path / "nowhere") is None
    wanted = place(tmp_path / folder)
    assert suites.locate(benchmark, tmp_path) == wanted


def test_locate_skips_folders_without_data(tmp_path: Path) -> None:
    benchmark = suites.find("blurb/hoc")
    place(tmp_path / "hoc", "README.md")
    place(tmp_path / "hoc", "LICENSE")
    assert suites.locate(benchmark, tmp_path) is None
    wanted = place(tmp_path / "hoc" / "blurb")
    assert suites.locate(benchmark, tmp_path) == wanted


def test_locate_takes_the_paper_s_version_first(tmp_path: Path) -> None:
    plain, blurb = place(tmp_path / "jnlpba"), place(tmp_path / "jnlpba" / "blurb")
    assert suites.locate(suites.find("blurb/jnlpba"), tmp_path) == blurb
    assert suites.locate(suites.find("biolm/jnlpba"), tmp_path) == plain


def test_locate_finds_folds(tmp_path: Path) -> None:
    place(tmp_path / "GAD" / "1")
    assert suites.locate(suites.find("biolm/gad"), tmp_path) == tmp_path / "GAD"
    assert suites.locate(suites.find("blurb/gad"), tmp_path) is None


def dataset(**golds: list[object]) -> Dataset:
    made = {split: tuple(SimpleNamespace(gold=gold) for gold in some) for split, some in golds.items()}
    return Dataset(made, (), "BIO")


def test_counting() -> None:
    tags = dataset(train=[("B-X", "I-X", "B-X", "O"), ("O", "I-Y")], test=[("O",)])
    assert suites.count(tags, "entities") == {"train": 3, "test": 0}
    assert suites.count(tags, "words") == {"train": 4, "test": 0}
    assert suites.count(tags, "sentences") == suites.count(tags, "examples") == {"train": 2, "test": 1}


def test_counting_relations() -> None:
    made = Dataset(
        dataset(train=["false", "CPR:3", "other", "CPR:9"]).splits, ("false", "CPR:3", "CPR:9", "other"), "single"
    )
    assert suites.count(made, "relations") == {"train": 3}
    assert suites.count(made, "relations", "other") == {"train": 3}
    assert suites.count(made, "examples") == {"train": 4}


def test_differences_have_numbers() -> None:
    benchmark = suites.find("blurb/ncbi-disease")
    assert suites.check_counts(benchmark, {"train": 5134, "dev": 787, "test": 960}) == []
    assert suites.check_counts(benchmark, {"train": 5100, "test": 970}) == [
        "train has 5,100 entities where the paper counts 5,134 (34 fewer, 0.7%)",
        "test has 970 entities where the paper counts 960 (10 more, 1.0%)",
    ]


def test_total_count_needs_all_splits() -> None:
    benchmark = suites.find("biolm/bc2gm")
    assert suites.check_counts(benchmark, {"train": 15197, "dev": 3061}) == []
    assert suites.check_counts(benchmark, {"train": 15197, "dev": 3061, "test": 6325}) == []
    (said,) = suites.check_counts(benchmark, {"train": 15197, "test": 6325})
    assert said.startswith("the data have 21,522 entities where the paper counts 24,583 (3,061 fewer")


def test_differences_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    made = dataset(train=[("B-X", "O")] * 4182, dev=[("B-X",)] * 4246)
    assert len(suites.warn_of_counts(suites.find("blurb/bc5-disease"), made)) == 1
    said = capsys.readouterr().err
    assert "blurb/bc5-disease: dev has 4,246" in said and "2 more, 0.0%" in said
    assert suites.warn_of_counts(suites.find("biolm/i2b2-2010"), made) == []
    assert capsys.readouterr().err == ""


def test_no_heavy_imports() -> None:
    code = (
        "import sys; from biosqueeze.benchmarks import suite; [suite.load_suite(name) for name in suite.names()];"
        "sys.exit(','.join({'torch', 'transformers', 'numpy', 'rich'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.real
def test_entities_of_the_real_files(real_data: Path) -> None:
    for key, differing in (
        ("blurb/ncbi-disease", 0),
        ("blurb/bc5-chem", 0),
        ("blurb/bc5-disease", 1),
        ("blurb/bc2gm", 0),
    ):
        benchmark = suites.find(key)
        found = suites.locate(benchmark, real_data)
        assert found is not None
        data = registry.load("tasks", benchmark.kind).Kind().read(str(found), ("train", "dev", "test"))
        assert len(suites.check_counts(benchmark, suites.count(data, benchmark.unit))) == differing, key
