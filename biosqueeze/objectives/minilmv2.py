"""MiniLMv2: relations of queries, of keys and of values of one layer (Wang et al. 2021, section 3.1).

The heads of each model are joined and split anew into relation heads, of which both have as many: so neither their
numbers of heads nor their hidden sizes need be the same.
"""

import torch
from torch import Tensor

from biosqueeze.objectives import Pair, states_of
from biosqueeze.objectives._relations import relation_divergence

KINDS = ("mlm", "task")
READS = "relations"
LAYERS = "last"
UNIT = "tokens"
SAME_HEADS = False
NEEDS_TEACHER_LOGITS = False


def loss(pair: Pair) -> Tensor:
    """Sum over tokens of D(teacher || student) of their q-q, k-k and v-v relations, each the mean over heads. Scalar.

    A relation is softmax(x x^T / sqrt(relation head size)), over the tokens that attention may look at.
    """
    return torch.stack([_relation(pair, part) for part in ("query", "key", "value")]).sum()


def _relation(pair: Pair, part: str) -> Tensor:
    student, teacher = states_of(pair, part)
    heads = pair.relation_heads or teacher.shape[1]
    return relation_divergence(_regrouped(student, heads), _regrouped(teacher, heads), pair.allowed)


def _regrouped(vectors: Tensor, heads: int) -> Tensor:
    """The same vectors in other heads: (batch, heads, length, size) -> (batch, relation heads, length, other size)."""
    batch, _, length, _ = vectors.shape
    return vectors.transpose(1, 2).reshape(batch, length, heads, -1).transpose(1, 2)
