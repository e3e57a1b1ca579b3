"""Runtimes: one file each, `load(checkpoint, precision, threads) -> Predictor`."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Predictor(Protocol):
    """A model in some runtime."""

    def predict(self, batch: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float32]:
        """Logits (batch, length, labels) of a padded batch: input_ids, attention_mask (batch, length) each."""
