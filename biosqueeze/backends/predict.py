"""Running a predictor over many sequences: batches of like length, results in the order given."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from biosqueeze.backends import Predictor
from biosqueeze.data.collate import pad

_NOT_INPUT = {"labels", "words"}


def predict_all(
    predictor: Predictor,
    features: Sequence[Mapping[str, NDArray[np.int64]]],
    pad_token_id: int,
    batch_size: int,
) -> list[NDArray[np.float32]]:
    """Logits of every sequence.

    Args:
        predictor: any backend's.
        features: arrays (length,) for each sequence, `input_ids` among them; labels and words are left out.
        pad_token_id: fills short sequences.
        batch_size: sequences at once.

    Returns:
        for each sequence (length, labels), padding cut away, in the order of `features`.
    """
    results: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(features)
    lengths = np.array([len(feature["input_ids"]) for feature in features])
    order = np.argsort(-lengths, kind="stable")
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        inputs = [{k: v for k, v in features[i].items() if k not in _NOT_INPUT} for i in chosen]
        logits = predictor.predict(pad(inputs, pad_token_id))  # (batch, longest, labels)
        for row, index in zip(logits, chosen, strict=True):
            results[index] = row[: lengths[index]]
    return results
