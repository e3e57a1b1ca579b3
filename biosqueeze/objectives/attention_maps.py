"""Mean squared error of attention maps, the distributions after the softmax, every layer (compact-transformers paper,
equation 5, second part, as the published code of TinyBioBERT computes it; TinyBERT compares scores: see `attention`).
"""

from torch import Tensor

from biosqueeze.objectives import LayerPair
from biosqueeze.objectives._relations import attention_maps

KINDS = ("mlm", "task")
READS = "attention"
LAYERS = "all"
UNIT = "pairs"
SAME_HEADS = True
NEEDS_TEACHER_LOGITS = False


def loss(pair: LayerPair) -> Tensor:
    """Sum the squared difference of probabilities over the allowed pairs of tokens; mean over heads. Scalar."""
    student, teacher = attention_maps(pair)  # (batch, heads, query, key); zero for keys that are not allowed
    difference = (student - teacher).masked_fill(~pair.allowed.unsqueeze(1), 0)
    return difference.square().sum() / difference.shape[1]
