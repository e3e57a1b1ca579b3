"""Pairs: MedNLI's, PubMedQA's and BioASQ's own formats and plain records. All texts are made up."""

import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biosqueeze.errors import UsageError
from biosqueeze.tasks import Formulation, open_task
from biosqueeze.tasks.readers.pubmedqa import split_ids, stratified_parts
from tests import pico
from tests.error_messages import explained

ALL = ("train", "dev", "test")
TOPICS = ("heart", "liver", "skin", "lung", "bone", "eye", "nerve", "blood", "brain", "gut")
DECISIONS = st.lists(st.sampled_from(["yes", "no", "maybe"]), min_size=40, max_size=120)


def task(**form):
    return open_task("nli", Formulation(**form))


def read(source, splits=ALL, **form):
    return task(**form).read(str(source), splits)


def dump(path: Path, value) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def golds(data, split):
    return [example.gold for example in data.splits[split]]


# MedNLI


def mednli(directory: Path) -> Path:
    labels = {"train": ["entailment", "neutral", "contradiction"], "dev": ["neutral"], "test": ["entailment"]}
    for split, names in labels.items():
        records = (
            {
                "sentence1": f"The {topic} of this {split} patient was examined.",
                "pairID": f"{split}-{topic}",
                "sentence1_parse": "(ROOT)",
                "sentence2": f"Someone looked at the {topic} in {split}.",
                "gold_label": name,
            }
            for topic, name in zip(TOPICS, names, strict=False)
        )
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (directory / f"mli_{split}_v1.jsonl").write_text(lines)
    return directory


def test_mednli_files_are_read_under_their_own_names(tmp_path, capsys):
    data = read(mednli(tmp_path), ("train", "dev"))
    assert data.labels == ("contradiction", "entailment", "neutral")
    assert data.scheme == "single"
    first = data.splits["train"][0]
    assert first.texts == ("The heart of this train patient was examined.", "Someone looked at the heart in train.")
    assert (first.gold, first.id) == ("entailment", "train-heart")
    said = capsys.readouterr().err
    assert "first = sentence1, second = sentence2, label = gold_label, id = pairID" in said
    assert "train 3, dev 1, test 1" in said


def test_pairs_without_a_majority_are_left_out(tmp_path, capsys):
    for split in ("train", "dev"):
        rows = [(f"{split} {topic} was seen", label) for topic in TOPICS for label in ("yes", "no", "-")]
        records = ({"sentence1": text, "sentence2": label * 4, "gold_label": label} for text, label in rows)
        (tmp_path / f"{split}.jsonl").write_text("\n".join(map(json.dumps, records)))
    data = read(tmp_path, ("train", "dev"))
    assert data.labels == ("no", "yes")
    assert Counter(golds(data, "dev")) == {"yes": 10, "no": 10}
    assert "20 pairs without a majority for one label (-) are left out" in " ".join(capsys.readouterr().err.split())


def test_missing_mednli_split_is_explained(tmp_path):
    (mednli(tmp_path) / "mli_dev_v1.jsonl").unlink()
    explained(lambda: read(tmp_path, ("train", "dev")), "no dev split", "mli_dev_v1.jsonl")


# PubMedQA


def pubmedqa(directory: Path) -> Path:
    rng = random.Random(3)
    questions = {
        str(n): {
            "QUESTION": f"Does treatment {n} help the {TOPICS[n % 10]}?",
            "CONTEXTS": [f"We tried treatment {n} on mice.", f"It was watched for {n} days."],
            "final_decision": rng.choice(["yes", "no", "maybe"]),
        }
        for n in range(60)
    }
    dump(directory / "ori_pqal.json", questions)
    test = {name: item["final_decision"] for name, item in questions.items() if int(name) % 2}
    dump(directory / "test_ground_truth.json", test)
    return directory


def test_pubmedqa_is_split_by_its_ground_truth(tmp_path, capsys):
    data = read(pubmedqa(tmp_path))
    ids = {split: [example.id for example in data.splits[split]] for split in ALL}
    assert ids["test"] == [str(n) for n in range(1, 60, 2)]
    assert sorted(ids["train"] + ids["dev"], key=int) == [str(n) for n in range(0, 60, 2)]
    assert 3 <= len(ids["dev"]) <= 6  # a tenth, rounded up for each of three labels
    assert data.labels == ("maybe", "no", "yes")
    first = data.splits["test"][0]
    assert first.texts == (
        "Does treatment 1 help the liver?",
        "We tried treatment 1 on mice. It was watched for 1 days.",
    )
    assert "no official fold" in capsys.readouterr().err
    assert [example.id for example in read(tmp_path).splits["dev"]] == ids["dev"]


@given(DECISIONS)
@settings(max_examples=40, deadline=None)
def test_split_recognises_the_published_test_half(decisions):
    named = {str(n): decision for n, decision in enumerate(decisions)}
    published = frozenset(stratified_parts(named, 2, random.Random(0))[1])
    parts, ours = split_ids(named, published)
    assert ours
    assert set(parts["test"]) == published
    assert sorted([*parts["train"], *parts["dev"], *parts["test"]]) == sorted(named)
    other = frozenset(list(named)[: len(named) // 2])
    assert split_ids(named, other)[1] == (other == published)


@given(DECISIONS, st.integers(2, 10), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_parts_have_every_question_once(decisions, parts, seed):
    named = {str(n): decision for n, decision in enumerate(decisions)}
    drawn = stratified_parts(named, parts, random.Random(seed))
    assert sorted(name for part in drawn for name in part) == sorted(named)


@given(st.integers(2, 10), st.dictionaries(st.sampled_from(["yes", "no", "maybe"]), st.integers(1, 4), min_size=1))
def test_parts_have_equally_many_of_every_label(parts, shares):
    decisions = [label for label, share in shares.items() for _ in range(parts * share)]
    named = {str(n): decision for n, decision in enumerate(decisions)}
    counts = [Counter(named[name] for name in part) for part in stratified_parts(named, parts, random.Random(0))]
    assert counts == [Counter(shares)] * parts


def test_official_pubmedqa_folds_are_used(tmp_path):
    questions = json.loads((pubmedqa(tmp_path) / "ori_pqal.json").read_text())
    names = list(questions)
    shares = {"pqal_fold0/train_set": names[:40], "pqal_fold0/dev_set": names[40:45], "test_set": names[45:]}
    for file, share in shares.items():
        dump(tmp_path / f"{file}.json", {name: questions[name] for name in share})
    for source in (tmp_path, tmp_path / "pqal_fold0"):
        data = read(source)
        assert [[example.id for example in data.splits[split]] for split in ALL] == list(shares.values())
    (tmp_path / "test_set.json").unlink()
    explained(lambda: read(tmp_path), "test_set.json", "split_dataset.py pqal")


def test_damaged_pubmedqa_is_explained(tmp_path):
    truth = pubmedqa(tmp_path) / "test_ground_truth.json"
    with pytest.raises(UsageError, match="first=QUESTION is not used for PubMedQA's files"):
        read(tmp_path, column=("first=QUESTION",))
    dump(truth, {"1000": "yes"})
    explained(lambda: read(tmp_path), "does not fit ori_pqal.json")
    truth.write_text("{")
    explained(lambda: read(tmp_path), "invalid JSON")
    truth.unlink()
    explained(lambda: read(tmp_path), "test_ground_truth.json")
    questions = json.loads((tmp_path / "ori_pqal.json").read_text())
    questions["7"]["final_decision"] = "perhaps"
    dump(tmp_path / "ori_pqal.json", questions)
    explained(lambda: read(tmp_path), '["7"]', "final_decision is 'perhaps'")


# BioASQ


def question(number: int, answer, **changed):
    snippets = [{"text": f"Drug {number} works."}, {"text": f"It cured {number} mice."}]
    body = f"Is drug {number} of use in the {TOPICS[number % 10]}?"
    return {"id": f"q{number}", "type": "yesno", "body": body, "snippets": snippets, "exact_answer": answer} | changed


def bioasq(directory: Path) -> Path:
    train = [question(0, "yes"), question(1, ["no"]), question(2, [["x"]], type="factoid"), question(3, "Yes")]
    dump(directory / "BioASQ-training7b" / "training7b.json", {"questions": train})
    (directory / "training7b.json").write_bytes((directory / "BioASQ-training7b" / "training7b.json").read_bytes())
    dump(directory / "dev.json", {"questions": [question(4, "no")]})
    dump(directory / "7B1_golden.json", {"questions": [question(5, "yes")]})
    dump(directory / "7B2_golden.json", {"questions": [question(6, "no"), question(7, "", type="summary")]})
    return directory


def test_bioasq_yes_or_no_questions_are_read_from_its_own_files(tmp_path, capsys):
    data = read(bioasq(tmp_path))
    assert data.labels == ("no", "yes")
    assert [golds(data, split) for split in ALL] == [["yes", "no", "yes"], ["no"], ["yes", "no"]]
    assert data.splits["test"][0].texts == ("Is drug 5 of use in the eye?", "Drug 5 works. It cured 5 mice.")
    said = capsys.readouterr().err
    assert "test is 7B1_golden.json, 7B2_golden.json: 2 of 3 questions are yes-or-no questions" in said
    assert "training7b.json: 3 of 4 questions" in said


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"exact_answer": "perhaps"}, ("questions[0]", "neither yes nor no")),
        ({"body": ""}, ("questions[0]: no first",)),
        ({"snippets": []}, ("questions[0]: no second",)),
        ({"snippets": True}, ('questions[0] has no list "snippets"',)),
        ({"type": "list"}, ("no question of type yesno",)),
        ({"id": "q5"}, ("the id 'q5' is already used at", "questions[0]")),
    ],
)
def test_damaged_bioasq_is_explained(tmp_path, changed, words):
    dump(bioasq(tmp_path) / "7B2_golden.json", {"questions": [question(6, "no") | changed]})
    if changed.get("type") == "list":
        (tmp_path / "7B1_golden.json").unlink()
    explained(lambda: read(tmp_path), *words)


def test_missing_bioasq_split_and_broken_file_are_explained(tmp_path):
    dev = bioasq(tmp_path) / "dev.json"
    dev.write_text('{"questions": [\n{"id": }]}')
    explained(lambda: read(tmp_path), "dev.json:2: invalid JSON")
    dev.unlink()
    explained(lambda: read(tmp_path), "no dev split", "dev.json")
    with pytest.raises(UsageError, match="is not used for BioASQ's files"):
        read(tmp_path, column=("first=body",))


# Records


def records(directory: Path, **changed: str) -> Path:
    for split, labels in {"train": "01", "dev": "1", "test": "10"}.items():
        rows = (
            f"{split}{n}\tIs the {TOPICS[n]} hurt in {split}?\tThe {TOPICS[n]} was seen by {split}.\t{label}\n"
            for n, label in enumerate(labels)
        )
        (directory / f"{split}.tsv").write_text(changed.get(split, "".join(rows)))
    return directory


def test_blurb_table_without_header_is_read_by_place(tmp_path, capsys):
    data = read(records(tmp_path))
    assert golds(data, "train") == ["0", "1"]
    assert data.splits["dev"][0].texts == ("Is the heart hurt in dev?", "The heart was seen by dev.")
    assert "first = 2, second = 3, label = 4, id = 1" in capsys.readouterr().err


def test_bad_records_are_explained(tmp_path):
    records(tmp_path, dev="a\tIs it so at all?\tIt is so.\t2\n")
    explained(lambda: read(tmp_path, ("train", "dev")), "dev.tsv:1: the label '2' is none of train's (0, 1)")
    records(tmp_path, dev="a\tIs it so at all?\tIt is so.\t1\na\tIs it not?\tIt is not.\t1\n")
    explained(lambda: read(tmp_path, ("train", "dev")), "dev.tsv:2: the id 'a' is already used")
    records(tmp_path, dev="a\tIs it so at all?\t\t1\n")
    explained(lambda: read(tmp_path, ("train", "dev")), "dev.tsv:1: no second")
    records(tmp_path, dev=(tmp_path / "test.tsv").read_text())
    explained(lambda: read(tmp_path, ("train", "dev")), "a test split used for selection")


# Windows and predictions


def test_only_the_longer_text_is_cut():
    kind = task()
    posed = kind.example_from_record({"question": "cells of patients", "context": "protein " * 40})
    tokenizer = pico.tokenizer_of("bert")
    (window,) = kind.encode([posed], ("no", "yes"), tokenizer, 16)
    ids, types = window.features["input_ids"], window.features["token_type_ids"]
    assert len(ids) == 16
    whole = tokenizer("cells of patients")["input_ids"]
    assert ids[types == 0].tolist() == whole
    assert "labels" not in window.features


def test_predictions_and_scores():
    kind = task()
    labels = ("maybe", "no", "yes")
    examples = [
        kind.example_from_record({"QUESTION": "a?", "CONTEXTS": ["b", "c"]}),
        kind.example_from_record({"sentence1": "d", "sentence2": "e"}),
    ]
    assert examples[0].texts == ("a?", "b c")
    windows = kind.encode(examples, labels, pico.tokenizer_of("bert"), 16)
    logits = [np.array([0, 0, 1], np.float32), np.array([0, 2, 1], np.float32)]
    assert kind.decode(windows, logits, examples, labels) == ["yes", "no"]
    described = kind.describe(windows, logits, examples, labels)
    assert [one["label"] for one in described] == ["yes", "no"]
    assert sum(described[0]["scores"].values()) == pytest.approx(1.0)
    assert kind.score(["yes", "no"], ["yes", "yes"])["accuracy"] == 0.5
    explained(lambda: kind.example_from_record({"question": "a?"}), "no column for 'second'")


@pytest.mark.real
def test_real_pubmedqa_has_the_reference_counts_and_split(real_data, capsys):
    data = read(real_data / "pubmedqa")
    assert [len(data.splits[split]) for split in ALL] == [450, 50, 500]
    assert "equals test_ground_truth.json" in capsys.readouterr().err
    # The authors deal 55.2% yes, 33.8% no and 11% maybe into every fold alike.
    assert Counter(golds(data, "dev")) == {"yes": 27, "no": 17, "maybe": 6}


def test_a_mistyped_split_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="validation"):
        open_task("nli").read(str(tmp_path), ("validation",))
