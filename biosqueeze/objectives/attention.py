"""Mean squared error of attention scores before the softmax, every layer (TinyBERT, Jiao et al. 2020, equation 7;
compact-transformers paper, equation 5, second part).
"""

from torch import Tensor

from biosqueeze.objectives import LayerPair
from biosqueeze.objectives._divergence import scores
from biosqueeze.objectives._relations import attention_sides

KINDS = ("mlm", "task")
READS = "attention"
LAYERS = "all"
UNIT = "pairs"
SAME_HEADS = True
NEEDS_TEACHER_LOGITS = False


def loss(pair: LayerPair) -> Tensor:
    """Sum the squared difference of scores over the allowed pairs of tokens; mean over heads. Scalar."""
    student, teacher = attention_sides(pair)
    difference = scores(student) - scores(teacher)  # (batch, heads, query, key)
    return difference.masked_fill_(~pair.allowed.unsqueeze(1), 0).square().sum() / difference.shape[1]
