"""Class weights for --class-weights balanced: inverse to the counts of the labels in train."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.collate import Features
from biosqueeze.data.output_types import OutputType

Weights = NDArray[np.float32]


def balanced_weights(features: Sequence[Features], output_type: OutputType, classes: int) -> Weights:
    """Compute weights by scikit-learn's "balanced" formula (King and Zeng 2001): n / (classes that occur * count).

    Their mean over the whole training set is 1, so the loss keeps its scale.

    Args:
        features: the training windows.
        output_type: tokens, single or multi.
        classes: number of labels of the model.

    Returns:
        (classes,) for tokens and single: the weight of an item of each class, 1 for a class that does not occur.
        (2, classes) for multi: the weight of a decision where the label is absent, and where it is present.

    Raises:
        ValueError: the labels are not classes.
    """
    counts = output_type.class_counts(features, classes)
    if counts is None:
        raise ValueError("the labels are not classes")
    occurring = counts > 0
    weights = counts.sum(axis=0) / (np.maximum(1, occurring.sum(axis=0)) * np.maximum(counts, 1))
    return np.where(occurring, weights, 1.0).astype(np.float32)
