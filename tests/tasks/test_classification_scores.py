"""Scores of classifications against scikit-learn and by hand."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score
from sklearn.preprocessing import MultiLabelBinarizer

from biosqueeze.tasks.metrics.labels import score_classes, score_label_sets

NAMES = ("a", "b", "c", "d")
CLASSES = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), min_size=1, max_size=30)
LABEL_SET = st.frozensets(st.sampled_from(NAMES))
LABEL_SETS = st.lists(st.tuples(LABEL_SET, LABEL_SET), min_size=1, max_size=30)


@given(CLASSES)
@settings(max_examples=60, deadline=None)
def test_scores_of_one_label_equal_scikit_learn(pairs):
    gold, predicted = map(list, zip(*pairs, strict=True))
    scores = score_classes(gold, predicted)
    assert math.isclose(scores["accuracy"], accuracy_score(gold, predicted))
    for average in ("micro", "macro"):
        assert math.isclose(scores[f"{average}_f1"], f1_score(gold, predicted, average=average, zero_division=0))
    names = sorted({*gold, *predicted})
    by_label = f1_score(gold, predicted, labels=names, average=None, zero_division=0)
    assert [scores[f"f1-{name}"] for name in names] == pytest.approx(by_label)
    assert [scores[f"support-{name}"] for name in names] == [gold.count(name) for name in names]


@given(LABEL_SETS)
@settings(max_examples=60, deadline=None)
def test_scores_of_label_sets_equal_scikit_learn(pairs):
    gold, predicted = map(list, zip(*pairs, strict=True))
    scores = score_label_sets(gold, predicted)
    names = sorted(set().union(*gold, *predicted))
    if not names:
        assert (scores["f1"], scores["macro_f1"], scores["example_f1"], scores["accuracy"]) == (0.0, 0.0, 1.0, 1.0)
        return
    binary = MultiLabelBinarizer(classes=NAMES)  # scikit-learn reads a single column as no multi-label data
    present = [NAMES.index(name) for name in names]
    true, guessed = binary.fit_transform(gold), binary.transform(predicted)
    assert math.isclose(scores["precision"], precision_score(true, guessed, average="micro", zero_division=0))
    assert math.isclose(scores["recall"], recall_score(true, guessed, average="micro", zero_division=0))
    assert math.isclose(scores["f1"], f1_score(true, guessed, average="micro", zero_division=0))
    macro = f1_score(true, guessed, labels=present, average="macro", zero_division=0)
    assert math.isclose(scores["macro_f1"], macro)
    assert math.isclose(scores["example_f1"], f1_score(true, guessed, average="samples", zero_division=1))
    assert math.isclose(scores["accuracy"], accuracy_score(true, guessed))
    by_label = f1_score(true, guessed, labels=present, average=None, zero_division=0)
    assert [scores[f"f1-{name}"] for name in names] == pytest.approx(by_label)


@given(LABEL_SETS)
@settings(max_examples=60, deadline=None)
def test_blue_f1_of_labelled_examples(pairs):
    precisions, recalls = [], []
    for gold, predicted in pairs:
        if gold:
            precisions.append(len(gold & predicted) / len(predicted) if predicted else 0.0)
            recalls.append(len(gold & predicted) / len(gold))
    precision, recall = (sum(values) / len(values) if values else 0.0 for values in (precisions, recalls))
    expected = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    assert score_label_sets(*zip(*pairs, strict=True))["blue_f1"] == pytest.approx(expected)


def test_micro_f1_of_an_example_by_hand():
    # 2 of 3 said are right, 2 of 4 that hold are found: P 2/3, R 1/2, F1 4/7.
    scores = score_label_sets([{"a", "b"}, {"c"}, {"a"}, set()], [{"a"}, {"c", "b"}, set(), set()])
    assert (scores["precision"], scores["recall"], scores["f1"]) == pytest.approx((2 / 3, 1 / 2, 4 / 7))
    assert scores["accuracy"] == 0.25
