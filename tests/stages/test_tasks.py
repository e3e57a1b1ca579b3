"""tasks: tables of benchmarks, and statistics of a data set."""

import json
import tomllib
from pathlib import Path

import pytest

from biosqueeze.benchmarks import suite as suites

TRAIN = "Aspirin\tB-Drug\nhelps\tO\nsome\tO\nadults\tO\n\nno\tO\nfever\tB-Sign\nnor\tO\nlow\tB-Sign\nblood\tI-Sign\n"
TEST = "aspirin\tB-Drug\nhelps\tO\nsome\tO\nadults\tO\n\na\tO\nrash\tB-Sign\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    root = tmp_path / "ncbi-disease"
    root.mkdir()
    for name, text in (("train", TRAIN), ("test", TEST)):
        (root / f"{name}.tsv").write_text(text)
    return root


def test_all_benchmarks_are_listed(shell):
    said = shell("tasks")
    assert (said.code, said.err) == (0, "")
    for name in suites.suite_names():
        assert all(benchmark.key in said.out for benchmark in suites.load_suite(name).benchmarks)
    facts = json.loads(shell("tasks --json").out)
    assert {name: len(suite["benchmarks"]) for name, suite in facts["suites"].items()} == {
        "blurb": 13,
        "biolm": 18,
        "bioformer": 15,
        "compact": 11,
        "biom": 6,
    }


@pytest.mark.parametrize("name", suites.suite_names())
def test_suite_is_printed_in_full(name, shell):
    said = shell("tasks", name)
    suite = suites.load_suite(name)
    table = tomllib.loads(suite.path.read_text())
    assert (said.code, said.err) == (0, "")
    flat = " ".join(said.out.split())
    for row, benchmark in zip(table["benchmarks"], suite.benchmarks, strict=True):
        assert row["licence"] in flat
        assert all(source in flat for source in row["sources"])
        assert all(f"{count:,}" in flat for count in row.get("counts", {}).values())
        assert all(f"{score:.2f}" in flat for score in benchmark.published[0].scores.values())
    facts = json.loads(shell("tasks", name, "--json").out)
    assert facts["path"] == str(suite.path)
    assert facts["averages"].keys() == {average.name for average in suite.averages}


def test_benchmark_is_printed_in_full(shell):
    said = shell("tasks blurb/ncbi-disease")
    for words in (
        "5,134",
        "entity-level",
        "1e-5 or 3e-5 or 5e-5",
        "epochs 2 to 60",
        "mean of 5 runs",
        "87.82",
        "https://",
    ):
        assert words in said.out
    facts = json.loads(shell("tasks blurb/ncbi-disease --json").out)
    assert facts["counts"] == {"train": 5134, "dev": 787, "test": 960}
    assert facts["hyper"]["learning_rates"] == [1e-5, 3e-5, 5e-5]
    assert "label all pieces" in shell("tasks compact/bc2gm").out
    assert "signed agreement" in shell("tasks biolm/mednli").out
    assert "scores of dev, not of test" in shell("tasks bioformer/litcovid").out


def test_data_are_found_under_a_root(data, shell):
    found = json.loads(shell("tasks blurb", data.parent, "--json").out)["benchmarks"]
    assert {key: row["found"] for key, row in found.items() if row["found"]} == {"blurb/ncbi-disease": str(data)}
    shown = shell("tasks blurb/ncbi-disease", data.parent).out
    assert f"found in {data}" in shown
    assert f"not found under {data.parent}" in shell("tasks blurb/hoc", data.parent).out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["blrub"], "Did you mean 'blurb'?"),
        (["blurb/nbci-disease"], "Did you mean 'blurb/ncbi-disease'?"),
        (["inspect"], "name its directory"),
        (["ncbi-disease"], "biosqueeze tasks inspect ncbi-disease"),
        (["--task", "ner"], "biosqueeze tasks inspect DIR"),
        (["blurb", "--types", "Drug"], "biosqueeze tasks inspect DIR"),
        (["blurb", "nowhere"], "no directory nowhere"),
        (["inspect", "ncbi-disease", "--task", "nre"], "Did you mean 'ner'?"),
        (["inspect", "ncbi-disease", "--task", "ner", "--negative", "none"], "--negative is not used"),
    ],
)
def test_wrong_arguments_are_explained(words, says, data, shell):
    said = shell("tasks", *words)
    assert (said.code, said.out) == (2, "")
    assert says in said.err
    assert len(said.err.splitlines()) == 1


def test_inspect_prints_statistics_and_writes_nothing(data, shell):
    before = {path: path.read_bytes() for path in data.iterdir()}
    said = shell("tasks inspect", data, "--task", "ner")
    flat = " ".join((said.out + said.err).split())
    for words in ("train.tsv", "BIO", "Drug 1 1", "Sign 2 1", "examples 2 2", "longest 5 4", "up to 8 2 2 100.0%"):
        assert words in flat, words
    assert "1 of 1 test texts are in train too" in flat
    assert "guess" not in flat
    assert {path: path.read_bytes() for path in data.iterdir()} == before


def test_inspect_as_json(data, shell):
    facts = json.loads(shell("tasks inspect", data, "--task", "blurb/ncbi-disease", "--json").out)
    assert (facts["kind"], facts["guessed"], facts["scheme"]) == ("ner", False, "BIO")
    assert facts["splits"]["train"]["golds"] == {"Sign": 2, "Drug": 1}
    assert facts["splits"]["test"]["words"]["histogram"] == {"8": 2}
    assert facts["overlaps"] == [{"of": "test", "in": "train", "shared": 1, "texts": 1}]
    assert facts["counts"] == {"train": 3, "test": 2}
    assert facts["differences"] == [
        "train has 3 entities where the paper counts 5,134 (5,131 fewer, 99.9%)",
        "test has 2 entities where the paper counts 960 (958 fewer, 99.8%)",
    ]


def test_equal_counts_are_confirmed(data, shell, monkeypatch):
    from dataclasses import replace

    benchmark = replace(suites.find_benchmark("blurb/ncbi-disease"), counts={"train": 3, "test": 2})
    resolver = "biosqueeze.finetuning.data.resolve_task"
    monkeypatch.setattr(resolver, lambda _: ("ner", benchmark))
    said = shell("tasks inspect", data, "--task", "blurb/ncbi-disease")
    assert "as many entities as the paper counts (train 3, test 2)" in said.out
    assert "where the paper counts" not in said.err
    monkeypatch.setattr(resolver, lambda _: ("ner", replace(benchmark, counts={})))
    assert "no counts to compare" in shell("tasks inspect", data, "--task", "blurb/ncbi-disease").out


def test_guessed_kind_is_marked_as_guess(data, shell):
    said = shell("tasks inspect", data)
    assert said.code == 0
    assert "is read as ner, which is a guess; pico would read it too" in said.err
    facts = json.loads(shell("tasks inspect", data, "--json").out)
    assert (facts["guessed"], facts["other_kinds"]) == (True, ["pico"])


def test_reading_options_are_applied(data, shell):
    facts = json.loads(shell("tasks inspect", data, "--task", "ner", "--types", "Drug", "--json").out)
    assert facts["splits"]["train"]["golds"] == {"Drug": 1}


def test_data_are_read_as_the_benchmark_reads_them(data, shell):
    """BLURB merges the types of JNLPBA."""
    said = shell("tasks inspect", data, "--task", "blurb/jnlpba", "--json")
    assert said.code == 0, said.err
    facts = json.loads(said.out)
    assert list(facts["splits"]["train"]["golds"].values()) == [3]
    assert facts["counts"] == {"train": 3, "test": 2}
    assert "Sign" not in shell("tasks inspect", data, "--task", "blurb/jnlpba").out


def test_path_from_standard_input(data, shell):
    assert shell("tasks inspect - --task ner", stdin=f"{data}\n").out.startswith(f"{data}: ner")


def test_bad_data_are_explained(data, shell):
    (data / "dev.tsv").write_text("a\tO\nb\n")
    said = shell("tasks inspect", data, "--task", "ner")
    assert (said.code, said.out) == (1, "")
    assert "dev.tsv:2" in said.err
    assert shell("tasks inspect nowhere").code == 1


def test_dry_run_names_the_kind(data, shell):
    said = shell("tasks inspect", data, "--dry-run")
    assert said.code == 0
    assert f"read {data} as ner and print its statistics" in said.err
    assert "every named benchmark" in shell("tasks --dry-run").err
