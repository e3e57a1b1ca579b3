"""Attention scores of every layer, before their softmax: mean squared error (TinyBERT, Jiao et al. 2020, equation 7;
compact-transformers paper, equation 5, second part).
"""

from torch import Tensor

from biosqueeze.objectives import Pair, states_of
from biosqueeze.objectives._relations import scores

KINDS = ("mlm", "task")
READS = "attention"
LAYERS = "all"
UNIT = "pairs"
SAME_HEADS = True
NEEDS_TEACHER_LOGITS = False


def loss(pair: Pair) -> Tensor:
    """Sum over the allowed pairs of tokens of the squared difference of their scores, the mean over heads. Scalar."""
    queries, keys = states_of(pair, "query"), states_of(pair, "key")
    difference = scores(queries[0], keys[0]) - scores(queries[1], keys[1])  # (batch, heads, query, key)
    return difference.masked_fill_(~pair.allowed.unsqueeze(1), 0).square().sum() / difference.shape[1]
