"""The input of masked language modelling (Devlin et al. 2019, section 3.1): what is hidden, and how."""

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
    """Hide some tokens: of those chosen, 80% become [MASK], 10% a random token, 10% stay as they are.

    Args:
        ids: token ids (length,), special tokens included.
        special: ids that are never chosen and never drawn as a random token.
        vocab_size: random tokens are drawn from 0..vocab_size-1.
        mask_id: id of [MASK].
        rng: the only source of chance: equal states give equal results.
        rate: share of the ordinary tokens to choose; at least one is chosen where there is one.

    Returns:
        input ids (length,) and labels (length,): the true id where a token was chosen, -100 elsewhere.
    """
    banned = np.unique(np.fromiter(special, dtype=np.int64))
    ordinary = np.flatnonzero(~np.isin(ids, banned))
    labels = np.full_like(ids, IGNORED)
    if not len(ordinary):
        return ids.copy(), labels
    count = max(1, round(rate * len(ordinary)))
    chosen = rng.permutation(ordinary)[:count]
    labels[chosen] = ids[chosen]
    drawn = _ordinary_tokens(banned, vocab_size, count, rng)
    fate = rng.random(count)
    hidden = ids.copy()
    hidden[chosen] = np.where(fate < _MASKED, mask_id, np.where(fate < _MASKED + _RANDOM, drawn, ids[chosen]))
    return hidden, labels


def _ordinary_tokens(banned: Ids, vocab_size: int, count: int, rng: np.random.Generator) -> Ids:
    """Draw uniformly from the vocabulary without the banned ids: a rank, moved up past the banned below."""
    within = banned[(banned >= 0) & (banned < vocab_size)]
    ranks = rng.integers(0, max(1, vocab_size - len(within)), size=count)
    return ranks + np.searchsorted(within - np.arange(len(within)), ranks, side="right")
