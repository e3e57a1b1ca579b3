"""Kullback-Leibler divergence of attention distributions in the printed direction, D(student || teacher), every layer
(compact-transformers paper, equation 8, second part).

It is not the default: the paper's published code computes `attention-kl`, D(teacher || student). The reverse lets a
student ignore some of the keys that the teacher attends to, and its gradient vanishes where the student has no mass.
"""

from torch import Tensor

from biosqueeze.objectives import LayerPair
from biosqueeze.objectives._divergence import divergence
from biosqueeze.objectives._relations import attention_sides

KINDS = ("mlm", "task")
READS = "attention"
LAYERS = "all"
UNIT = "tokens"
SAME_HEADS = True
NEEDS_TEACHER_LOGITS = False


def loss(pair: LayerPair) -> Tensor:
    """Sum D(student || teacher) of the attention distributions over queries; mean over heads. Scalar."""
    student, teacher = attention_sides(pair)
    return divergence(student, teacher, pair.allowed)
