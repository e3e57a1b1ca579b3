"""MiniLM: attention and value relations of one layer (Wang et al. 2020, sections 3.1 and 3.2).

The hidden sizes may differ; the numbers of heads may not.
"""

from torch import Tensor

from biosqueeze.objectives import Pair, states_of
from biosqueeze.objectives._relations import attention_divergence, relation_divergence

KINDS = ("mlm", "task")
READS = "relations"
LAYERS = "last"
UNIT = "tokens"
SAME_HEADS = True
NEEDS_TEACHER_LOGITS = False


def loss(pair: Pair) -> Tensor:
    """Sum over tokens of D(teacher || student) of their attention and of the relations of their values. Scalar.

    The relation of values is softmax(v v^T / sqrt(head size)), over the tokens that attention may look at; both parts
    are means over heads.
    """
    student, teacher = states_of(pair, "value")
    return attention_divergence(pair) + relation_divergence(student, teacher, pair.allowed)
