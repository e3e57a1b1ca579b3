"""Mask tokens for masked language modelling (Devlin et al. 2019, section 3.1)."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.feature_keys import IGNORED

Ids = NDArray[np.int64]
_MASKED, _RANDOM = 0.8, 0.1


def mask(
    ids: Ids,
    special: Iterable[int],
    vocab_size: int,
    mask_id: int,
    rng: np.random.Generator,
    rate: float = 0.15,
) -> tuple[Ids, Ids]:
    """Choose tokens to predict: 80% of them become [MASK], 10% a random token, and 10% stay unchanged.

    Args:
        ids: token ids (length,), special tokens included.
        special: ids that are never chosen and never drawn as a random token.
        vocab_size: random tokens are drawn from 0..vocab_size-1.
        mask_id: id of [MASK].
        rng: the only source of randomness; equal states give equal results.
        rate: share of the ordinary tokens to choose; at least one if there is any.

    Returns:
        input ids (length,) and labels (length,): the original ids of the chosen tokens, -100 elsewhere.
    """
    banned = np.unique(np.fromiter(special, dtype=np.int64))
    ordinary = np.flatnonzero(~np.isin(ids, banned))
    labels = np.full_like(ids, IGNORED)
    if not len(ordinary):
        return ids.copy(), labels
    count = max(1, round(rate * len(ordinary)))
    chosen = rng.permutation(ordinary)[:count]
    labels[chosen] = ids[chosen]
    random = _ordinary_tokens(banned, vocab_size, count, rng)
    draw = rng.random(count)
    masked = ids.copy()
    masked[chosen] = np.where(draw < _MASKED, mask_id, np.where(draw < _MASKED + _RANDOM, random, ids[chosen]))
    return masked, labels


def _ordinary_tokens(banned: Ids, vocab_size: int, count: int, rng: np.random.Generator) -> Ids:
    """Draw uniformly from the vocabulary without the banned ids: draw ranks, and skip the banned ids below."""
    within = banned[(banned >= 0) & (banned < vocab_size)]
    ranks = rng.integers(0, max(1, vocab_size - len(within)), size=count)
    return ranks + np.searchsorted(within - np.arange(len(within)), ranks, side="right")
