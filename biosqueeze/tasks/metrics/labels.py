"""Scores of labels, label sets, relations and numbers. scikit-learn and scipy are imported when something is scored."""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
Reals = NDArray[np.float64]


def score_classes(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    """Score one label per example.

    Args:
        gold: the label of each example.
        predicted: as gold.

    Returns:
        accuracy; micro_f1, which is equal to it where each example has one label; macro_f1, the mean of the labels'
        F1; and f1-LABEL and support-LABEL for each label that occurs in either.
    """
    from sklearn.metrics import accuracy_score, precision_recall_fscore_support

    names = sorted({*gold, *predicted})
    ids = {name: number for number, name in enumerate(names)}
    sides = [np.array([ids[label] for label in side], dtype=np.int64) for side in (gold, predicted)]
    accuracy = float(accuracy_score(*sides))
    _, _, f1, support = precision_recall_fscore_support(*sides, labels=range(len(names)), average=None, zero_division=0)
    return {
        "accuracy": accuracy,
        "micro_f1": accuracy,
        "macro_f1": float(f1.mean()),
        **_by_name(names, f1, support),
    }


def score_label_sets(gold: Sequence[Collection[str]], predicted: Sequence[Collection[str]]) -> dict[str, float]:
    """Score any number of labels per example.

    BLURB scores HoC by the "average micro F1 across the ten cancer hallmarks" (PubMedBERT, section 4.5) without further
    definition. The public code that scores BLURB's HoC, such as BioLinkBERT's, pools all decisions, of every abstract
    and every hallmark, into one count of true positives, false positives and false negatives: `f1`. (The mean of ten
    hallmarks' F1 is `macro_f1`.) BLUE and the studies that follow it, bio-lm among them, leave out the abstracts
    without a label and average by abstract: `blue_f1`.

    Args:
        gold: the labels of each example, possibly none.
        predicted: as gold.

    Returns:
        precision, recall and f1 (micro: over all pairs of an example and a label); macro_f1 (the mean of the labels'
        F1); example_f1 (the mean of the examples' F1, 1 if both sets are empty); blue_f1 (the harmonic mean of the mean
        precision and the mean recall over the examples with a label); accuracy (the share of equal sets); f1-LABEL
        and support-LABEL for each label that occurs in either.
    """
    names, true, guessed = _flags(gold, predicted)
    precision, recall, f1 = _micro_scores(true, guessed)
    by_label = _f1(true, guessed, axis=0)
    return {
        "precision": precision,
        "recall": recall,
        "f1": f1,
        "macro_f1": float(by_label.mean()) if names else 0.0,
        "example_f1": float(_f1(true, guessed, axis=1, empty=1.0).mean()),
        "blue_f1": _blue_f1(true, guessed),
        "accuracy": float((true == guessed).all(axis=1).mean()),
        **_by_name(names, by_label, true.sum(axis=0)),
    }


def score_relations(gold: Sequence[str], predicted: Sequence[str], positive: Sequence[str]) -> dict[str, float]:
    """Compute micro and macro F1 over positive labels, each label's F1, and the accuracy over all labels.

    The scores are those of scikit-learn's `f1_score(gold, predicted, labels=positive, average="micro")` and so on, with
    `zero_division=0`, computed from counts: four times as fast.

    Args:
        gold: the label of each example.
        predicted: as gold.
        positive: the labels that stand for a relation.
    """
    support, predictions = Counter(gold), Counter(predicted)
    hits = Counter(label for label, other in zip(gold, predicted, strict=True) if label == other)
    true, in_gold, in_predicted = (sum(counts[label] for label in positive) for counts in (hits, support, predictions))
    f1 = {label: _ratio(2 * hits[label], support[label] + predictions[label]) for label in positive}
    return {
        "f1": _ratio(2 * true, in_gold + in_predicted),
        "macro_f1": _ratio(sum(f1.values()), len(f1)),
        "precision": _ratio(true, in_predicted),
        "recall": _ratio(true, in_gold),
        "accuracy": _ratio(hits.total(), len(gold)),
        **{f"f1-{label}": value for label, value in f1.items()},
        **{f"support-{label}": support[label] for label in positive},
    }


def pearson(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Return Pearson's correlation of two lists of numbers; 0.0 if one is constant, where it is undefined."""
    from scipy import stats

    return _correlation(stats.pearsonr, gold, predicted)


def spearman(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Return Spearman's rank correlation, equal numbers sharing their mean rank; 0.0 if one list is constant."""
    from scipy import stats

    return _correlation(stats.spearmanr, gold, predicted)


def _correlation(function: Callable[..., Any], gold: Sequence[float], predicted: Sequence[float]) -> float:
    if len(set(gold)) < 2 or len(set(predicted)) < 2:
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a list may be nearly constant
        correlation = float(function(gold, predicted).statistic)
    return correlation if math.isfinite(correlation) else 0.0


def _flags(
    gold: Sequence[Collection[str]], predicted: Sequence[Collection[str]]
) -> tuple[tuple[str, ...], Flags, Flags]:
    """Return the labels that occur, and which example has which: (examples, labels) each.

    scikit-learn's scores of such arrays are equal, except for a single label, which it takes for two classes.
    """
    names = tuple(sorted({label for labels in (*gold, *predicted) for label in labels}))
    ids = {name: number for number, name in enumerate(names)}
    flags = np.zeros((2, len(gold), len(names)), dtype=bool)
    for side, sets in enumerate((gold, predicted)):
        for number, labels in enumerate(sets):
            flags[side, number, [ids[label] for label in labels]] = True
    return names, *flags


def _f1(true: Flags, guessed: Flags, *, axis: int, empty: float = 0.0) -> Reals:
    """Return F1 along an axis; `empty` if neither side has anything there."""
    hits = (true & guessed).sum(axis=axis)
    both = true.sum(axis=axis) + guessed.sum(axis=axis)
    return np.where(both > 0, 2 * hits / np.maximum(both, 1), empty)


def _micro_scores(true: Flags, guessed: Flags) -> tuple[float, float, float]:
    """Return precision, recall and F1 over all pairs of an example and a label; an undefined score is 0."""
    hits, in_predicted, in_gold = (int(flags.sum()) for flags in (true & guessed, guessed, true))
    return _ratio(hits, in_predicted), _ratio(hits, in_gold), _ratio(2 * hits, in_predicted + in_gold)


def _blue_f1(true: Flags, guessed: Flags) -> float:
    """Return the harmonic mean of the examples' mean precision and mean recall, over the examples with a label."""
    labelled = true.any(axis=1)
    true, guessed = true[labelled], guessed[labelled]
    if not len(true):
        return 0.0
    hits = (true & guessed).sum(axis=1)
    precision = float((hits / np.maximum(guessed.sum(axis=1), 1)).mean())
    recall = float((hits / true.sum(axis=1)).mean())
    return _ratio(2 * precision * recall, precision + recall)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _by_name(names: Sequence[str], f1: Reals, support: NDArray[np.int_]) -> Mapping[str, float]:
    return {
        **{f"f1-{name}": float(value) for name, value in zip(names, f1, strict=True)},
        **{f"support-{name}": int(value) for name, value in zip(names, support, strict=True)},
    }
