"""The transcribed tables add up to the papers' own averages, and data are found and counted."""

import subprocess
import sys
from dataclasses import fields
from statistics import fmean

import pytest

from biosqueeze.benchmarks import suite as suites
from biosqueeze.benchmarks.counts import UNITS
from biosqueeze.benchmarks.suite import Benchmark
from biosqueeze.errors import UsageError
from biosqueeze.tasks import Formulation, open_task
from biosqueeze.tasks.metrics.answers import Answers

SUITES = {name: suites.load_suite(name) for name in suites.suite_names()}
BENCHMARKS = [benchmark for suite in SUITES.values() for benchmark in suite.benchmarks]
# What a mean of printed numbers may be off by: half of the last digit of the mean, and as much again where the paper
# rounds what it did not print.
ROUNDING = {"blurb": 0.0051, "biolm": 0.071, "bioformer": 0.0075}


def test_suite_names() -> None:
    sizes = {name: len(suite.benchmarks) for name, suite in SUITES.items()}
    # The compact paper's ten data sets are eleven scores: BC5CDR has one for diseases and one for chemicals.
    assert sizes == {"blurb": 13, "biolm": 18, "bioformer": 15, "compact": 11, "biom": 6}
    assert len({benchmark.key for benchmark in BENCHMARKS}) == len(BENCHMARKS)


def mean_row(benchmark, model: str) -> float:
    """Return the mean of a model's rows, which the papers' averages use for benchmarks with several rows."""
    return fmean(row.scores[model] for row in benchmark.published)


@pytest.mark.parametrize("name", sorted(ROUNDING))
def test_published_scores_give_the_printed_averages(name: str) -> None:
    suite = SUITES[name]
    checked = 0
    for average in suite.averages:
        for model in suite.models:
            scores = {benchmark.name: mean_row(benchmark, model) for benchmark in suite.benchmarks}
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
    assert set(benchmark.counts) <= {"train", "dev", "test", suites.ALL_SPLITS}
    assert not benchmark.unit or benchmark.unit in UNITS
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
    benchmark = suites.find_benchmark("bioformer/bioasq-7b")
    assert benchmark.published_score("Bioformer-8L") == 41.61
    assert mean_row(benchmark, "Bioformer-8L") == pytest.approx(46.51, abs=0.01)
    assert suites.find_benchmark("compact/bioasq-7b").published_score("TinyBioBERT") == 25.05
    assert suites.find_benchmark("blurb/hoc").published_score("BioBERT") == 81.54


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
    benchmark = suites.find_benchmark("blurb/ncbi-disease")
    assert (benchmark.title, benchmark.key) == ("NCBI-disease", "blurb/ncbi-disease")
    assert suites.resolve_task("blurb/ncbi-disease") == ("ner", benchmark)
    assert suites.resolve_task("ner") == ("ner", None)


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
        suites.resolve_task(task)
    assert says in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_no_heavy_imports() -> None:
    code = (
        "import sys; from biosqueeze.benchmarks import suite; [suite.load_suite(name) for name in suite.suite_names()];"
        "sys.exit(','.join({'torch', 'transformers', 'numpy', 'rich'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_runs_and_hyperparameters_of_the_papers() -> None:
    """Typed a second time, by hand, from the papers."""
    blurb, biolm, compact = SUITES["blurb"], SUITES["biolm"], SUITES["compact"]
    assert {b.name: b.hyper.runs for b in blurb.benchmarks if b.hyper.runs != 5} == dict.fromkeys(
        ("biosses", "pubmedqa", "bioasq"), 10
    )
    assert {(b.hyper.epochs_from, b.hyper.epochs) for b in blurb.benchmarks} == {(2, 60)}
    assert {b.hyper.statistic for b in biolm.benchmarks} == {"median"}
    evaluated = {b.group: (b.hyper.eval_every, b.hyper.epochs) for b in biolm.benchmarks if b.name != "ddi-2013"}
    assert evaluated["sequence labelling"] == (500, 20)
    assert biolm["hoc"].hyper.eval_every == biolm["gad"].hyper.eval_every == 200
    ner = {(b.hyper.epochs, b.hyper.learning_rates, b.hyper.batch_sizes) for b in compact.benchmarks if b.kind == "ner"}
    assert ner == {(5, (5e-5,), (16,))}
    biom = SUITES["biom"]
    assert [(b.hyper.epochs, *b.hyper.learning_rates, *b.hyper.batch_sizes) for b in biom.benchmarks] == [
        *[(5, 2e-4, 48)] * 3, (4, 1e-4, 32), (3, 1e-4, 32), (4, 2e-5, 24),
    ]  # fmt: skip
