"""Predicting any number of sequences with little padding."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from biosqueeze.backends import Predictor
from biosqueeze.data.collate import pad
from biosqueeze.errors import is_out_of_memory


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
        batch_size: sequences in a batch, at most; fewer where the memory does not suffice.

    Returns:
        for each sequence, in the order given, float32 (its own length, labels); or (labels,) from a classifier of
        whole sequences.
    """
    lengths = [len(feature["input_ids"]) for feature in features]
    longest_first = sorted(range(len(features)), key=lambda i: -lengths[i])
    results: dict[int, NDArray[np.float32]] = {}
    while len(results) < len(features):
        chosen = longest_first[len(results) : len(results) + batch_size]
        try:
            output = predictor.predict(pad([features[i] for i in chosen], pad_token_id))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or len(chosen) == 1:
                raise
            batch_size = len(chosen) // 2  # the longest come first: what fits now fits to the end
            continue
        for row, i in zip(output, chosen, strict=True):
            # A copy, so that a long result list does not keep every padded batch in memory.
            results[i] = row[: lengths[i]].copy() if row.ndim == 2 else row.copy()
    return [results[i] for i in range(len(features))]
