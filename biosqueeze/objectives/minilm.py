"""MiniLM: attention and value relations of one layer (Wang et al. 2020, sections 3.1 and 3.2).

The hidden sizes may differ; the number of heads must be equal.
"""

from torch import Tensor

from biosqueeze.objectives import LayerPair, states_of
from biosqueeze.objectives._relations import attention_divergence, relation_divergence

KINDS = ("mlm", "task")
READS = "relations"
LAYERS = "last"
UNIT = "tokens"
SAME_HEADS = True
NEEDS_TEACHER_LOGITS = False


def loss(pair: LayerPair) -> Tensor:
    """Sum D(teacher || student) of the attention and of the value relations over tokens; mean over heads. Scalar.

    The value relation is softmax(v v^T / sqrt(head size)), over the keys that attention allows.
    """
    student, teacher = states_of(pair, "value")
    return attention_divergence(pair) + relation_divergence(student, teacher, pair.allowed)
