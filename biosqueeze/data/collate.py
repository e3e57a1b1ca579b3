"""Collate features of different lengths into one rectangular batch."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.feature_keys import ATTENTION_MASK, IGNORED, INPUT_IDS, LABELS, NO_WORD, TARGETS, TEACHER, WORDS

_FILL = {LABELS: IGNORED, WORDS: NO_WORD}
_FIXED = (TARGETS,)  # one value per class, not per token

Features = Mapping[str, NDArray[Any]]


def pad(features: Sequence[Features], pad_token_id: int) -> dict[str, NDArray[Any]]:
    """Pad features on the right to the longest, and stack them.

    Args:
        features: one mapping per sequence, all with the same keys: `input_ids` (length,), and any others of
            the same length (`labels`, `words`, `token_type_ids`, and of packed texts `positions` and `segments`),
            scalar (), or `targets` (classes,); and `teacher.*` (rows, ...), teacher outputs.
        pad_token_id: fills `input_ids`; `labels` are filled with -100, `words` with -1, all else with 0.

    Returns:
        each key as (batch, longest), a scalar one as (batch,), `targets` as (batch, classes), `teacher.*` as
        (all rows, ...) in the order of the batch, each with its own type; and `attention_mask`, int64
        (batch, longest): 1 on real tokens, 0 on padding.
    """
    lengths = np.array([len(feature[INPUT_IDS]) for feature in features])
    longest = int(lengths.max())
    fill = {**_FILL, INPUT_IDS: pad_token_id}
    batch = {key: _collated(key, [f[key] for f in features], longest, fill.get(key, 0)) for key in features[0]}
    # Packed blocks have one length already; positions outside every text are padding.
    real = batch["segments"] > 0 if "segments" in batch else np.arange(longest) < lengths[:, None]  # (batch, longest)
    batch[ATTENTION_MASK] = real.astype(np.int64)
    return batch


def _collated(key: str, values: Sequence[NDArray[Any]], longest: int, fill: int) -> NDArray[Any]:
    if key.startswith(TEACHER):
        return np.concatenate(values)
    return np.stack(values if key in _FIXED else [_padded(value, longest, fill) for value in values])


def _padded(values: NDArray[Any], longest: int, fill: int) -> NDArray[Any]:
    if values.ndim == 0:
        return values
    return np.pad(values, (0, longest - len(values)), constant_values=fill)
