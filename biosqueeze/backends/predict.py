"""Predict any number of sequences with little padding."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from biosqueeze.backends import Predictor
from biosqueeze.data.collate import pad
from biosqueeze.errors import is_out_of_memory
from biosqueeze.system.memory import limited_memory


def predict_all(
    predictor: Predictor,
    features: Sequence[Mapping[str, NDArray[np.int64]]],
    pad_token_id: int,
    batch_size: int,
) -> list[NDArray[np.float32]]:
    """Predict all sequences, in batches of similar length.

    Args:
        predictor: a loaded model.
        features: one mapping per sequence with at least `input_ids` (length,).
        pad_token_id: fills `input_ids`.
        batch_size: most sequences in a batch; halved where the memory of the GPU, or what is available now of the
            CPU's, is exhausted.

    Returns:
        for each sequence, in the given order, float32 (its length, labels); or (labels,) of a sequence classifier.
    """
    with limited_memory(predictor.device):
        return _predict(predictor, features, pad_token_id, batch_size)


def _predict(
    predictor: Predictor, features: Sequence[Mapping[str, NDArray[np.int64]]], pad_token_id: int, batch_size: int
) -> list[NDArray[np.float32]]:
    lengths = [len(feature["input_ids"]) for feature in features]
    longest_first = sorted(range(len(features)), key=lambda i: -lengths[i])
    results: dict[int, NDArray[np.float32]] = {}
    while len(results) < len(features):
        chosen = longest_first[len(results) : len(results) + batch_size]
        try:
            output = predictor.predict(pad([features[i] for i in chosen], pad_token_id))
        except Exception as error:
            if not is_out_of_memory(error) or len(chosen) == 1:
                raise
            batch_size = len(chosen) // 2  # the longest come first, so this fits to the end
            continue
        for row, i in zip(output, chosen, strict=True):
            # A copy, because a view would keep every padded batch in memory.
            results[i] = row[: lengths[i]].copy() if row.ndim == 2 else row.copy()
    return [results[i] for i in range(len(features))]
