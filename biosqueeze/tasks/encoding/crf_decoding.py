"""Tags of a sentence under a linear-chain CRF (Lafferty, McCallum and Pereira 2001): the likeliest, and chances."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Rows = NDArray[np.floating[Any]]
Scores = Mapping[str, Rows]
"""`transitions` (labels, labels) from the row's label to the column's, `start` and `end` (labels,)."""


def viterbi(emissions: Rows, scores: Scores) -> Ids:
    """The path with the highest sum of emissions, transitions, start and end; of equal ones the first by label ids.

    Args:
        emissions: (words, labels).
        scores: of the chain.

    Returns:
        a label id for each word, (words,).
    """
    words, labels = emissions.shape
    if words == 0:
        return np.zeros(0, dtype=np.int64)
    transitions = scores["transitions"].astype(np.float64)
    onward = emissions.astype(np.float64)  # becomes, from the last word on, the best score of a label and what follows
    onward[-1] += scores["end"]
    following = np.zeros((words, labels), dtype=np.int64)  # the label to go on with
    for word in range(words - 2, -1, -1):
        ways = transitions + onward[word + 1]  # (label, label of the next word)
        following[word] = ways.argmax(axis=1)
        onward[word] += ways.max(axis=1)
    path = np.zeros(words, dtype=np.int64)
    path[0] = (onward[0] + scores["start"]).argmax()
    for word in range(1, words):
        path[word] = following[word - 1, path[word - 1]]
    return path


def chances(emissions: Rows, scores: Scores) -> NDArray[np.float64]:
    """The probability of every label of every word, over all paths (forward-backward algorithm): (words, labels).

    Args:
        emissions: (words, labels).
        scores: of the chain.
    """
    words = len(emissions)
    if words == 0:
        return np.zeros(emissions.shape)
    transitions = scores["transitions"].astype(np.float64)
    ahead, behind = emissions.astype(np.float64), np.zeros(emissions.shape)
    ahead[0] += scores["start"]
    behind[-1] = scores["end"]
    for word in range(1, words):
        ahead[word] += _log_sum(ahead[word - 1][:, None] + transitions, axis=0)
        behind[-word - 1] = _log_sum(transitions + emissions[-word] + behind[-word], axis=1)
    together = ahead + behind
    raised = np.exp(together - together.max(axis=1, keepdims=True))
    made: NDArray[np.float64] = raised / raised.sum(axis=1, keepdims=True)
    return made


def _log_sum(values: Rows, axis: int) -> Rows:
    """Log of the sum of exponentials along an axis: (labels, labels) to (labels,)."""
    made: Rows = np.logaddexp.reduce(values, axis=axis)
    return made
