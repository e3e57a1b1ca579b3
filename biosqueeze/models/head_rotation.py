"""Rotate attention heads so that dropping their last dimensions changes the products as little as possible.

Attention depends on queries and keys only through their products, and on values only through the output layer, so each
pair of projections can be multiplied by an invertible matrix of the head's size and by its inverse. The singular value
decomposition of the product orders the dimensions: its first k give the closest product of rank k (Eckart & Young
1936).
"""

from typing import Any

import torch
from torch import Tensor

from biosqueeze.models.families import Family


@torch.no_grad()
def rotate_heads(layer: Any, family: Family, size: int) -> None:
    """Sort the dimensions of every head by singular value, in place; the layer's outputs stay the same.

    Args:
        layer: one layer of the encoder.
        family: names of its modules.
        size: dimensions of a head.
    """
    paths = (family.query, family.key, family.value, family.attention_output)
    query, key, value, output = (layer.get_submodule(path) for path in paths)
    for start in range(0, query.out_features, size):
        rows = slice(start, start + size)
        queries, keys = _balanced(_affine(query, rows), _affine(key, rows))
        values, outputs = _balanced(_affine(value, rows), output.weight[:, rows].T)
        for linear, rotated in ((query, queries), (key, keys), (value, values)):
            linear.weight[rows], linear.bias[rows] = rotated[:, :-1], rotated[:, -1]
        output.weight[:, rows] = outputs.T


def _affine(linear: Any, rows: slice) -> Tensor:
    """Return weights and bias of some outputs: (size, inputs + 1)."""
    return torch.cat([linear.weight[rows], linear.bias[rows, None]], dim=1)


def _balanced(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return factors with the same product left.T @ right, by descending singular value: (size, n) and (size, m)."""
    left_basis, left_triangular = torch.linalg.qr(left.double().T)
    right_basis, right_triangular = torch.linalg.qr(right.double().T)
    u, values, v = torch.linalg.svd(left_triangular @ right_triangular.T)
    root = values.sqrt()
    rotated = (left_basis @ u * root).T, (right_basis @ v.T * root).T
    return rotated[0].to(left.dtype), rotated[1].to(right.dtype)
