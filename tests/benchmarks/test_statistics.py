"""Statistics of data sets: counts compared with naive ones, for small data of every task kind."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biosqueeze.benchmarks import statistics
from biosqueeze.tasks import Dataset, open_task
from biosqueeze.tasks.metrics.answers import Answers
from biosqueeze.tasks.sniffing import read_available
from tests.tasks.sources import DATA, write_data

WORDS = st.lists(st.sampled_from(["Gene", "gene", "p53", "binds"]), max_size=40).map(tuple)


@given(st.lists(WORDS, min_size=1, max_size=30))
def test_every_length_is_in_its_bin(texts: list[tuple[str, ...]]) -> None:
    made = Dataset({"train": tuple(SimpleNamespace(words=words, gold="x") for words in texts)}, ("x",), "single")
    found = statistics.dataset_statistics(made, "classification")["splits"]["train"]["words"]
    lengths = [len(words) for words in texts]
    assert found["longest"] == max(lengths)
    assert sum(found["histogram"].values()) == len(texts)
    for top, number in ((8, found["histogram"].get("8", 0)), (16, found["histogram"].get("16", 0))):
        assert number == sum((top // 2 if top > 8 else -1) < length <= top for length in lengths)


@given(st.lists(WORDS, max_size=20), st.lists(WORDS, max_size=20))
def test_overlaps_are_those_of_a_naive_search(train: list[tuple[str, ...]], test: list[tuple[str, ...]]) -> None:
    (found,) = statistics.split_overlaps({"train": train, "test": test})
    known = [" ".join(words).lower() for words in train]
    long = [words for words in test if len(words) >= 4]
    assert found == {
        "of": "test",
        "in": "train",
        "shared": sum(" ".join(words).lower() in known for words in long),
        "texts": len(long),
    }


def test_gold_counts_of_every_kind() -> None:
    tags = [("B-X", "I-X", "B-X"), ("O", "B-Y", "B")]
    assert statistics.gold_counts("ner", tags) == {"X": 2, "Y": 1, "entity": 1}
    assert statistics.gold_counts("pico", [("I-PAR", "I-PAR", "O"), ("I-INT",)]) == {"PAR": 2, "INT": 1}
    assert statistics.gold_counts("nli", ["yes", "no", "yes"]) == {"yes": 2, "no": 1}
    assert statistics.gold_counts("classification", [frozenset("ab"), frozenset("b"), frozenset()]) == {
        "b": 2,
        "(none)": 1,
        "a": 1,
    }
    assert statistics.gold_counts("similarity", [1.0, 4.0, 1.0]) == {"lowest": 1.0, "mean": 2.0, "highest": 4.0}
    assert statistics.gold_counts("qa", [Answers(("a", "b")), Answers(())]) == {
        "with an answer": 1,
        "without an answer": 1,
    }
    assert statistics.gold_counts("ner", []) == {}


@pytest.mark.parametrize("kind", sorted(DATA))
def test_a_survey_of_every_kind(kind: str, tmp_path: Path) -> None:
    facts = statistics.dataset_statistics(read_available(open_task(kind), write_data(tmp_path, kind)), kind)
    assert list(facts["splits"]) == ["train", "dev", "test"]
    assert all(
        split["examples"] and split["words"]["longest"] > 2 and split["golds"] for split in facts["splits"].values()
    )
    json.dumps(facts)
