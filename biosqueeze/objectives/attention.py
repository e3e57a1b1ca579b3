"""Mean squared error of attention scores before the softmax, every layer (TinyBERT, Jiao et al. 2020, equation 7;
compact-transformers paper, equation 5, second part).
"""

from torch import Tensor

from biosqueeze.objectives import LayerPair, states_of
from biosqueeze.objectives._relations import scores

KINDS = ("mlm", "task")
READS = "attention"
LAYERS = "all"
UNIT = "pairs"
SAME_HEADS = True
NEEDS_TEACHER_LOGITS = False


def loss(pair: LayerPair) -> Tensor:
    """Sum the squared difference of scores over the allowed pairs of tokens; mean over heads. Scalar."""
    queries, keys = states_of(pair, "query"), states_of(pair, "key")
    difference = scores(queries[0], keys[0]) - scores(queries[1], keys[1])  # (batch, heads, query, key)
    return difference.masked_fill_(~pair.allowed.unsqueeze(1), 0).square().sum() / difference.shape[1]
