"""Attention heads turned so that their first dimensions carry most: what a head then loses is the least there is.

A head knows its queries and keys by their products alone, and its values by what the output layer makes of them, so
both pairs may be turned by any invertible matrix of the head's size. The one of their singular value decomposition
puts the dimensions in order: cut after the first k, the product is the closest one of rank k (Eckart & Young 1936).
"""

from typing import Any

import torch
from torch import Tensor

from biosqueeze.models.families import Family


@torch.no_grad()
def turn_heads(layer: Any, family: Family, size: int) -> None:
    """Put the dimensions of every head in falling order, in place; what the layer computes stays the same.

    Args:
        layer: one layer of the encoder.
        family: the names of its parts.
        size: dimensions of a head.
    """
    paths = (family.query, family.key, family.value, family.attention_output)
    query, key, value, output = (layer.get_submodule(path) for path in paths)
    for start in range(0, query.out_features, size):
        rows = slice(start, start + size)
        queries, keys = _balanced(_affine(query, rows), _affine(key, rows))
        values, outputs = _balanced(_affine(value, rows), output.weight[:, rows].T)
        for linear, turned in ((query, queries), (key, keys), (value, values)):
            linear.weight[rows], linear.bias[rows] = turned[:, :-1], turned[:, -1]
        output.weight[:, rows] = outputs.T


def _affine(linear: Any, rows: slice) -> Tensor:
    """Weights and bias of some outputs: (size, inputs + 1)."""
    return torch.cat([linear.weight[rows], linear.bias[rows, None]], dim=1)


def _balanced(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Two factors with the same product left.T @ right, by falling singular values: (size, n) and (size, m) each."""
    left_basis, left_rest = torch.linalg.qr(left.double().T)
    right_basis, right_rest = torch.linalg.qr(right.double().T)
    u, values, v = torch.linalg.svd(left_rest @ right_rest.T)
    root = values.sqrt()
    turned = (left_basis @ u * root).T, (right_basis @ v.T * root).T
    return turned[0].to(left.dtype), turned[1].to(right.dtype)
