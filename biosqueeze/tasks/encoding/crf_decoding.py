"""Tags of a sentence under a linear-chain CRF (Lafferty, McCallum and Pereira 2001): likeliest path and marginals."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Rows = NDArray[np.floating[Any]]
CrfParameters = Mapping[str, Rows]
"""`transitions` (labels, labels) from the row's label to the column's, `start` and `end` (labels,)."""


def viterbi(emissions: Rows, crf: CrfParameters) -> Ids:
    """Return the path with the highest sum of emissions, transitions, start and end.

    Of several such paths, the first by label ids is returned.

    Args:
        emissions: the logits of the words, (words, labels).
        crf: transition, start and end scores.

    Returns:
        a label id for each word, (words,).
    """
    words, labels = emissions.shape
    if words == 0:
        return np.zeros(0, dtype=np.int64)
    transitions = crf["transitions"].astype(np.float64)
    best = emissions.astype(np.float64)  # filled from the last word on: the best score of a label and all after it
    best[-1] += crf["end"]
    following = np.zeros((words, labels), dtype=np.int64)  # the best next label
    for word in range(words - 2, -1, -1):
        candidates = transitions + best[word + 1]  # (label, label of the next word)
        following[word] = candidates.argmax(axis=1)
        best[word] += candidates.max(axis=1)
    path = np.zeros(words, dtype=np.int64)
    path[0] = (best[0] + crf["start"]).argmax()
    for word in range(1, words):
        path[word] = following[word - 1, path[word - 1]]
    return path


def marginals(emissions: Rows, crf: CrfParameters) -> NDArray[np.float64]:
    """Return the marginal probability of every label of every word, by the forward-backward algorithm.

    Args:
        emissions: the logits of the words, (words, labels).
        crf: transition, start and end scores.

    Returns:
        (words, labels), each row with the sum 1.
    """
    words = len(emissions)
    if words == 0:
        return np.zeros(emissions.shape)
    transitions = crf["transitions"].astype(np.float64)
    forward, backward = emissions.astype(np.float64), np.zeros(emissions.shape)
    forward[0] += crf["start"]
    backward[-1] = crf["end"]
    for word in range(1, words):
        forward[word] += _log_sum(forward[word - 1][:, None] + transitions, axis=0)
        backward[-word - 1] = _log_sum(transitions + emissions[-word] + backward[-word], axis=1)
    log_scores = forward + backward
    scores = np.exp(log_scores - log_scores.max(axis=1, keepdims=True))
    probabilities: NDArray[np.float64] = scores / scores.sum(axis=1, keepdims=True)
    return probabilities


def _log_sum(values: Rows, axis: int) -> Rows:
    """Return the log of the sum of exponentials along an axis: (labels, labels) to (labels,)."""
    sums: Rows = np.logaddexp.reduce(values, axis=axis)
    return sums
