"""Rotate attention heads so that dropping their last dimensions changes the products as little as possible.

Attention depends on queries and keys only through their products, and on values only through the output layer, so each
pair of projections can be multiplied by an invertible matrix of the head's size and by its inverse. The singular value
decomposition of the product orders the dimensions: its first k give the closest product of rank k (Eckart & Young
1936).
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from biosqueeze.models.families import Family


@torch.no_grad()
def rotate_heads(layer: Any, family: Family, size: int) -> None:
    """Sort the dimensions of every head by singular value, in place; the layer's outputs stay the same.

    Args:
        layer: one layer of the encoder.
        family: names of its modules.
        size: dimensions of a head.
    """
    query_paths, key_paths = (family.query, family.position_query), (family.key, family.position_key)
    queries, keys = (
        [layer.get_submodule(path) for path in present(layer, paths)] for paths in (query_paths, key_paths)
    )
    value, output = layer.get_submodule(family.value), layer.get_submodule(family.attention_output)
    for start in range(0, value.out_features, size):
        rows = slice(start, start + size)
        rotated = _balanced(*(torch.cat([_affine(linear, rows) for linear in side], dim=1) for side in (queries, keys)))
        values, outputs = _balanced(_affine(value, rows), output.weight[:, rows].T)
        for linears, side in zip((queries, keys, [value]), (*rotated, values), strict=True):
            for linear, part in zip(linears, side.chunk(len(linears), dim=1), strict=True):
                linear.weight[rows], linear.bias[rows] = part[:, :-1], part[:, -1]
        output.weight[:, rows] = outputs.T


def present(layer: nn.Module, paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths of modules that a layer has."""
    names = {name for name, _ in layer.named_modules() if name}
    return tuple(path for path in paths if path in names)


@torch.no_grad()
def zero_dimensions(layer: Any, family: Family, size: int, keep: int) -> None:
    """Set all but the first dimensions of every head to zero in queries and values, in place.

    Args:
        layer: one layer of the encoder.
        family: names of its modules.
        size: dimensions of a head.
        keep: how many of them stay.
    """
    for path in present(layer, (family.query, family.position_query, family.value)):
        linear = layer.get_submodule(path)
        removed = [i for i in range(linear.out_features) if i % size >= keep]
        linear.weight[removed] = 0
        linear.bias[removed] = 0


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
