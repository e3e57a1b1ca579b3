"""From features of different lengths to one rectangular batch."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.masking import IGNORED

_FILL = {"labels": IGNORED, "words": -1}


def pad(features: Sequence[Mapping[str, NDArray[np.int64]]], pad_token_id: int) -> dict[str, NDArray[np.int64]]:
    """Pad on the right to the longest.

    Args:
        features: one mapping per sequence, all with the same keys: `input_ids` (length,), and any others of
            the same length (`labels`, `words`, `token_type_ids`) or scalar ().
        pad_token_id: fills `input_ids`; `labels` are filled with -100, `words` with -1, all else with 0.

    Returns:
        each key as int64 (batch, longest), a scalar one as (batch,); and `attention_mask` (batch, longest):
        1 on real tokens, 0 on padding.
    """
    lengths = np.array([len(feature["input_ids"]) for feature in features])
    longest = int(lengths.max())
    fill = {**_FILL, "input_ids": pad_token_id}
    batch = {
        key: np.stack([_padded(feature[key], longest, fill.get(key, 0)) for feature in features]) for key in features[0]
    }
    batch["attention_mask"] = (np.arange(longest) < lengths[:, None]).astype(np.int64)  # (batch, longest)
    return batch


def _padded(values: NDArray[np.int64], longest: int, fill: int) -> NDArray[np.int64]:
    if values.ndim == 0:
        return values
    return np.pad(values, (0, longest - len(values)), constant_values=fill)
