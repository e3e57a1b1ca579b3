"""Predicting any number of sequences with little padding."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from biosqueeze.backends import Predictor
from biosqueeze.data.collate import pad


def predict_all(
    predictor: Predictor,
    features: Sequence[Mapping[str, NDArray[np.int64]]],
    pad_token_id: int,
    batch_size: int,
) -> list[NDArray[np.float32]]:
    """Predict all sequences, those of like length together.

    Args:
        predictor: where to.
        features: one mapping per sequence with at least `input_ids` (length,).
        pad_token_id: fills `input_ids`.
        batch_size: sequences in a batch, at most.

    Returns:
        for each sequence, in the order given, float32 (its own length, labels); or (labels,) from a classifier of
        whole sequences.
    """
    lengths = [len(feature["input_ids"]) for feature in features]
    longest_first = sorted(range(len(features)), key=lambda i: -lengths[i])
    results: dict[int, NDArray[np.float32]] = {}
    for start in range(0, len(features), batch_size):
        chosen = longest_first[start : start + batch_size]
        output = predictor.predict(pad([features[i] for i in chosen], pad_token_id))
        for row, i in zip(output, chosen, strict=True):
            # A copy, so that a long result list does not keep every padded batch in memory.
            results[i] = row[: lengths[i]].copy() if row.ndim == 2 else row.copy()
    return [results[i] for i in range(len(features))]
