"""Run an encoder whose mean hidden states are compared by their cosine, on pairs of texts or on texts."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biosqueeze.backends import Batch, Predictor
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.data.feature_keys import ATTENTION_MASK, INPUT_IDS
from biosqueeze.models.custom_heads.files import saved_score_range
from biosqueeze.tasks.encoding.entities import FIRST, SECOND

_LEAST_NORM = 1e-8  # of torch's cosine_similarity


@dataclass(frozen=True)
class TextPairPredictor:
    """A loaded encoder and the cosine head of its checkpoint."""

    encoder: Predictor
    low: float
    """The score for a cosine of 0."""
    high: float
    """The score for a cosine of 1."""
    padding: int
    """Id of the pad token."""

    @classmethod
    def of(cls, encoder: Predictor, checkpoint: Checkpoint) -> "TextPairPredictor":
        """Return an encoder with the head of its checkpoint."""
        low, high = saved_score_range(checkpoint)
        return cls(encoder, low, high, int(checkpoint.config.get("pad_token_id") or 0))

    @property
    def device(self) -> str:
        """Where the encoder computes."""
        return self.encoder.device

    def predict(self, batch: Batch) -> NDArray[np.float32]:
        """Return the scores of pairs of texts, (pairs, 1); of a batch without `entities`, the last hidden states."""
        if "entities" not in batch:
            return self.encoder.predict(batch)
        texts = stack_texts(batch, self.padding)
        first, second = np.split(mean_states(self.encoder.predict(texts), texts[ATTENTION_MASK]), 2)
        norms = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
        cosines = (first * second).sum(-1, keepdims=True) / np.maximum(norms, _LEAST_NORM)[:, None]
        scores: NDArray[np.float32] = (self.low + (self.high - self.low) * cosines).astype(np.float32)
        return scores


def stack_texts(batch: Batch, padding: int) -> Batch:
    """Return `models.custom_heads.cosine.stack_texts` of arrays: `input_ids` and `attention_mask` alone."""
    selected = np.concatenate([batch["entities"] & bit != 0 for bit in (FIRST, SECOND)])  # (2 x pairs, length)
    order = np.argsort(~selected, axis=1, kind="stable")[:, : selected.sum(axis=1).max()]
    mask = np.take_along_axis(selected, order, axis=1)
    ids = np.take_along_axis(np.concatenate([batch[INPUT_IDS]] * 2), order, axis=1)
    return {INPUT_IDS: np.where(mask, ids, padding), ATTENTION_MASK: mask.astype(np.int64)}


def mean_states(hidden: NDArray[np.float32], mask: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the mean over unmasked tokens: hidden (texts, length, hidden), mask (texts, length) -> (texts, hidden)."""
    means: NDArray[np.float32] = np.einsum("bl,blh->bh", (mask / mask.sum(axis=1, keepdims=True)), hidden)
    return means
