"""Weights of labels by their counts in train, so that rare ones are not drowned."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.collate import Features
from biosqueeze.data.output_types import OutputType
from biosqueeze.errors import UsageError

Weights = NDArray[np.float32]


def balanced_weights(features: Sequence[Features], output_type: OutputType, classes: int) -> Weights:
    """Weights by scikit-learn's "balanced" formula (King and Zeng 2001): n / (classes that occur * count).

    Over the whole training set they have mean 1, so the loss keeps its scale.

    Args:
        features: the training windows.
        output_type: tokens, single or multi.
        classes: how many labels the model tells apart.

    Returns:
        (classes,) for tokens and single: what an item of each class weighs, 1 for one that never occurs. (2, classes)
        for multi: what a decision weighs where the label does not hold, and where it does.

    Raises:
        UsageError: the labels are not classes.
    """
    counts = output_type.class_counts(features, classes)
    if counts is None:
        raise UsageError("--class-weights balanced needs labels that are classes; leave it out for this task")
    return _balanced(counts)


def _balanced(counts: NDArray[np.int64]) -> Weights:
    occurring = counts > 0
    weights = counts.sum(axis=0) / (np.maximum(1, occurring.sum(axis=0)) * np.maximum(counts, 1))
    return np.where(occurring, weights, 1.0).astype(np.float32)
