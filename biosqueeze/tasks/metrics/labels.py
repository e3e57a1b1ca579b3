"""Scores of labels and numbers, from counts; equal to scikit-learn's and scipy's where those have them."""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
Reals = NDArray[np.float64]


def score_classes(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    """Scores where every example has one label.

    Args:
        gold: the label of each example.
        predicted: as gold.

    Returns:
        accuracy; micro_f1, which is the same number where one label is given to each example; macro_f1, the mean
        of the labels' F1; and f1-LABEL and support-LABEL for each label that occurs in either.
    """
    names, true, guessed = _flags([{label} for label in gold], [{label} for label in predicted])
    accuracy = float(np.mean([one == other for one, other in zip(gold, predicted, strict=True)]))
    by_label = _f1(true, guessed, axis=0)
    return {
        "accuracy": accuracy,
        "micro_f1": _micro(true, guessed)[2],
        "macro_f1": float(by_label.mean()),
        **_by_name(names, by_label, true),
    }


def score_label_sets(gold: Sequence[Collection[str]], predicted: Sequence[Collection[str]]) -> dict[str, float]:
    """Scores where an example has any number of labels.

    BLURB scores HoC by the "average micro F1 across the ten cancer hallmarks" (PubMedBERT, section 4.5), and says no
    more. The public code that scores BLURB's HoC, such as BioLinkBERT's, pools all decisions, of every abstract and
    every hallmark, into one count of true positives, false positives and false negatives: `f1`. (The mean
    of ten hallmarks' F1 is `macro_f1`.) BLUE and the studies that follow it, bio-lm among them, leave out the
    abstracts without a label and average by abstract: `blue_f1`.

    Args:
        gold: the labels of each example, which may be none.
        predicted: as gold.

    Returns:
        precision, recall and f1 (micro: over all pairs of an example and a label); macro_f1 (the mean of the labels'
        F1); example_f1 (the mean of the examples' F1, 1 where both say none); blue_f1 (the harmonic mean of the mean
        precision and the mean recall over the examples with a label); accuracy (all labels of an example are right);
        f1-LABEL and support-LABEL for each label that occurs in either.
    """
    names, true, guessed = _flags(gold, predicted)
    precision, recall, f1 = _micro(true, guessed)
    by_label = _f1(true, guessed, axis=0)
    return {
        "precision": precision,
        "recall": recall,
        "f1": f1,
        "macro_f1": float(by_label.mean()) if names else 0.0,
        "example_f1": float(_f1(true, guessed, axis=1, empty=1.0).mean()),
        "blue_f1": _blue(true, guessed),
        "accuracy": float((true == guessed).all(axis=1).mean()),
        **_by_name(names, by_label, true),
    }


def pearson(one: Sequence[float], other: Sequence[float]) -> float:
    """The correlation of two lists of numbers; 0.0 where one of them is constant, and there is none."""
    first, second = _centred(one), _centred(other)
    size = float(np.linalg.norm(first) * np.linalg.norm(second))
    if size == 0.0 or len(set(one)) == 1 or len(set(other)) == 1:
        return 0.0
    # Divided one by one: their product may overflow.
    value = (first / np.linalg.norm(first)) @ (second / np.linalg.norm(second))
    return float(np.clip(value, -1.0, 1.0))


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """The correlation of two lists' ranks, equal numbers sharing the mean of theirs; 0.0 where one is constant."""
    return pearson(_ranks(one).tolist(), _ranks(other).tolist())


def _centred(values: Sequence[float]) -> Reals:
    array = np.asarray(values, dtype=np.float64)
    centred: Reals = array - array.mean()
    return centred


def _ranks(values: Sequence[float]) -> Reals:
    _, inverse, counts = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True, return_counts=True)
    ranks: Reals = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranks


def _flags(
    gold: Sequence[Collection[str]], predicted: Sequence[Collection[str]]
) -> tuple[tuple[str, ...], Flags, Flags]:
    """The labels that occur, and which example has which: (examples, labels) each."""
    names = tuple(sorted({label for labels in (*gold, *predicted) for label in labels}))
    true, guessed = (
        np.array([[name in labels for name in names] for labels in side], dtype=bool).reshape(len(side), len(names))
        for side in (gold, predicted)
    )
    return names, true, guessed


def _f1(true: Flags, guessed: Flags, *, axis: int, empty: float = 0.0) -> Reals:
    """F1 along an axis; `empty` where neither side has anything."""
    hits = (true & guessed).sum(axis=axis)
    both = true.sum(axis=axis) + guessed.sum(axis=axis)
    return np.where(both > 0, 2 * hits / np.maximum(both, 1), empty)


def _micro(true: Flags, guessed: Flags) -> tuple[float, float, float]:
    """Precision, recall and F1 over all decisions; 0 where there is nothing to count."""
    hits, said, there = (int(flags.sum()) for flags in (true & guessed, guessed, true))
    return hits / max(said, 1), hits / max(there, 1), 2 * hits / max(said + there, 1)


def _blue(true: Flags, guessed: Flags) -> float:
    labelled = true.any(axis=1)
    true, guessed = true[labelled], guessed[labelled]
    if not len(true):
        return 0.0
    hits = (true & guessed).sum(axis=1)
    precision = float((hits / np.maximum(guessed.sum(axis=1), 1)).mean())
    recall = float((hits / true.sum(axis=1)).mean())
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _by_name(names: Sequence[str], f1: Reals, true: Flags) -> dict[str, float]:
    supports = true.sum(axis=0)
    return {
        **{f"f1-{name}": float(value) for name, value in zip(names, f1, strict=True)},
        **{f"support-{name}": int(value) for name, value in zip(names, supports, strict=True)},
    }
