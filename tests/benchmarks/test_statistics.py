"""tasks/_survey.py and _guess.py: counts against naive ones, and the right kind for small data of every kind."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biosqueeze.benchmarks import statistics as surveys
from biosqueeze.benchmarks.task_guess import guess, read_there
from biosqueeze.errors import SqueezeError
from biosqueeze.tasks import Dataset, Formulation, open_task
from biosqueeze.tasks.metrics.answers import Answers

WORDS = st.lists(st.sampled_from(["Gene", "gene", "p53", "binds"]), max_size=40).map(tuple)


@given(st.lists(WORDS, min_size=1, max_size=30))
def test_every_length_is_in_its_bin(texts: list[tuple[str, ...]]) -> None:
    made = Dataset({"train": tuple(SimpleNamespace(words=words, gold="x") for words in texts)}, ("x",), "single")
    found = surveys.survey(made, "classification")["splits"]["train"]["words"]
    lengths = [len(words) for words in texts]
    assert found["longest"] == max(lengths)
    assert sum(found["histogram"].values()) == len(texts)
    for top, number in ((8, found["histogram"].get("8", 0)), (16, found["histogram"].get("16", 0))):
        assert number == sum((top // 2 if top > 8 else -1) < length <= top for length in lengths)


@given(st.lists(WORDS, max_size=20), st.lists(WORDS, max_size=20))
def test_overlaps_are_those_of_a_naive_search(train: list[tuple[str, ...]], test: list[tuple[str, ...]]) -> None:
    (found,) = surveys.overlaps({"train": train, "test": test})
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
    assert surveys.golds("ner", tags) == {"X": 2, "Y": 1, "entity": 1}
    assert surveys.golds("pico", [("I-PAR", "I-PAR", "O"), ("I-INT",)]) == {"PAR": 2, "INT": 1}
    assert surveys.golds("nli", ["yes", "no", "yes"]) == {"yes": 2, "no": 1}
    assert surveys.golds("classification", [frozenset("ab"), frozenset("b"), frozenset()]) == {
        "b": 2,
        "(none)": 1,
        "a": 1,
    }
    assert surveys.golds("similarity", [1.0, 4.0, 1.0]) == {"lowest": 1.0, "mean": 2.0, "highest": 4.0}
    assert surveys.golds("qa", [Answers(("a", "b")), Answers(())]) == {"with an answer": 1, "without an answer": 1}
    assert surveys.golds("ner", []) == {}


def splits(root: Path, suffix: str, text: Callable[[int], str]) -> Path:
    for number, split in enumerate(("train", "dev", "test")):
        (root / f"{split}{suffix}").write_text(text(number), encoding="utf-8")
    return root


def squad(number: int) -> str:
    context = f"Study {number}. The protein p53 binds to DNA."
    answer = {"text": "p53", "answer_start": context.index("p53")}
    question = {"id": f"q{number}", "question": "Which protein binds?", "answers": [answer]}
    return json.dumps(
        {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": [question]}]}]}
    )


def lines(*rows: dict[str, object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


DATA: dict[str, tuple[str, Callable[[int], str]]] = {
    "ner": (".tsv", lambda n: f"Trial{n}\tO\nof\tO\naspirin\tB-Drug\n.\tO\n"),
    "pico": (".tsv", lambda n: f"Trial{n}\tO\nof\tO\naspirin\tI-INT\n.\tO\n\nadults\tI-PAR\n.\tO\n"),
    "qa": (".json", squad),
    "relation": (
        ".jsonl",
        lambda n: lines(
            *(
                {"text": f"In trial {n} << aspirin >> blocks [[ COX{i} ]].", "label": label}
                for i, label in enumerate("ab")
            )
        ),
    ),
    "similarity": (
        ".tsv",
        lambda n: (
            "sentence1\tsentence2\tscore\n" + "".join(f"a {n} {i} b\tc {n} {i} d\t{i / 3:.2f}\n" for i in range(8))
        ),
    ),
    "nli": (
        ".jsonl",
        lambda n: lines(
            *(
                {"sentence1": f"He has a fever, case {n}{i}.", "sentence2": "He is ill.", "gold_label": label}
                for i, label in enumerate(("entailment", "neutral", "contradiction"))
            )
        ),
    ),
    "classification": (
        ".tsv",
        lambda n: "text\tlabel\n" + "".join(f"A study number {n} of {label}\t{label}\n" for label in ("mice", "men")),
    ),
}


@pytest.mark.parametrize("kind", sorted(DATA))
def test_the_kind_is_guessed_and_read(kind: str, tmp_path: Path) -> None:
    source = str(splits(tmp_path, *DATA[kind]))
    found = guess(source, Formulation())
    assert found.kind == kind
    assert kind not in found.others
    data = read_there(open_task(kind), source)
    facts = surveys.survey(data, kind)
    assert list(facts["splits"]) == ["train", "dev", "test"]
    assert all(
        split["examples"] and split["words"]["longest"] > 2 and split["golds"] for split in facts["splits"].values()
    )
    json.dumps(facts)


def test_nothing_fits(tmp_path: Path) -> None:
    splits(tmp_path, ".bin", lambda _: "?")
    with pytest.raises(SqueezeError, match=r"no kind of task reads .* --task ner"):
        guess(str(tmp_path), Formulation())


def test_kind_without_the_option_is_not_guessed(tmp_path: Path) -> None:
    source = str(splits(tmp_path, *DATA["ner"]))
    with pytest.raises(SqueezeError, match="no kind"):
        guess(source, Formulation(negative="none"))


def test_available_splits_are_read(tmp_path: Path) -> None:
    suffix, text = DATA["ner"]
    (tmp_path / f"train{suffix}").write_text(text(0))
    (tmp_path / f"test{suffix}").write_text(text(1))
    assert list(read_there(open_task("ner"), str(tmp_path)).splits) == ["train", "test"]


def test_damaged_split_is_an_error(tmp_path: Path) -> None:
    splits(tmp_path, *DATA["ner"])
    (tmp_path / "dev.tsv").write_text("a\tO\nb\n")
    with pytest.raises(SqueezeError, match=r"dev\.tsv:2"):
        read_there(open_task("ner"), str(tmp_path))


def test_splits_without_named_files_are_tried(tmp_path: Path) -> None:
    assert list(read_there(open_task("ner"), "demo:ner").splits) == ["train", "dev", "test"]
    with pytest.raises(SqueezeError, match="no train split"):
        read_there(open_task("ner"), str(tmp_path))


def test_splits_that_no_file_is_named_after(tmp_path: Path) -> None:
    """As PubMedQA's does, whose files are called ori_pqal.json and test_ground_truth.json."""
    (tmp_path / "test_ground_truth.json").write_text("{}")
    asked = []

    class Made:
        def read(self, source: str, splits: tuple[str, ...]) -> Dataset:
            asked.append(splits)
            return Dataset(dict.fromkeys(splits, ()), (), "single")

    assert list(read_there(Made(), str(tmp_path)).splits) == ["train", "dev", "test"]
    assert set(asked) == {("train", "dev", "test")}
