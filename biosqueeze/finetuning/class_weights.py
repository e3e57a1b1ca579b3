"""Weights of labels by their counts in train, so that rare ones are not drowned."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.collate import Features
from biosqueeze.errors import UsageError

Weights = NDArray[np.float32]


def balanced_weights(features: Sequence[Features], problem: str, classes: int) -> Weights:
    """Weights by scikit-learn's "balanced" formula (King and Zeng 2001): n / (classes that occur * count).

    Over the whole training set they have mean 1, so the loss keeps its scale.

    Args:
        features: the training windows.
        problem: tokens, single or multi (see `tasks.problem_of`).
        classes: how many labels the model tells apart.

    Returns:
        (classes,) for tokens and single: what an item of each class weighs, 1 for one that never occurs. (2, classes)
        for multi: what a decision weighs where the label does not hold, and where it does.

    Raises:
        UsageError: the problem has no classes.
    """
    if problem == "multi":
        held = np.stack([feature["targets"] for feature in features]) > 0.5  # (items, classes)
        return np.stack([_balanced(np.bincount(held[:, c], minlength=2)) for c in range(classes)], axis=1)
    if problem not in ("tokens", "single"):
        raise UsageError("--class-weights balanced needs labels that are classes; leave it out for this task")
    labels = np.concatenate([np.atleast_1d(feature["labels"]) for feature in features])
    return _balanced(np.bincount(labels[labels >= 0], minlength=classes))


def _balanced(counts: NDArray[np.int64]) -> Weights:
    occurring = counts > 0
    weights = counts.sum() / (max(1, occurring.sum()) * np.maximum(counts, 1))
    return np.where(occurring, weights, 1.0).astype(np.float32)
