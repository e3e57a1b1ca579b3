"""MiniLMv2: relations of queries, of keys and of values of one layer (Wang et al. 2021, section 3.1).

The heads of each model are concatenated and regrouped into the same number of relation heads, so the models may differ
in the number of heads and in the hidden size.
"""

import torch
from torch import Tensor

from biosqueeze.objectives import LayerPair, states_of
from biosqueeze.objectives._relations import relation_divergence

KINDS = ("mlm", "task")
READS = "relations"
LAYERS = "last"
UNIT = "tokens"
SAME_HEADS = False
NEEDS_TEACHER_LOGITS = False


def loss(pair: LayerPair) -> Tensor:
    """Sum D(teacher || student) of the q-q, k-k and v-v relations over tokens; mean over heads. Scalar.

    A relation is softmax(x x^T / sqrt(relation head size)), over the keys that attention allows.
    """
    return torch.stack([_relation(pair, part) for part in ("query", "key", "value")]).sum()


def _relation(pair: LayerPair, part: str) -> Tensor:
    student, teacher = states_of(pair, part)
    heads = pair.relation_heads or teacher.shape[1]
    return relation_divergence(_regrouped(student, heads), _regrouped(teacher, heads), pair.allowed)


def _regrouped(vectors: Tensor, heads: int) -> Tensor:
    """Regroup heads: (batch, heads, length, size) -> (batch, relation heads, length, relation head size)."""
    batch, _, length, _ = vectors.shape
    return vectors.transpose(1, 2).reshape(batch, length, heads, -1).transpose(1, 2)
