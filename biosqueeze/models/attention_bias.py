"""What relative positions add to attention scores, which queries and keys alone do not give."""

import math
from collections.abc import Callable
from types import MethodType
from typing import Any

from torch import Tensor, nn

from biosqueeze.models.families import Family


def hook_bias(layer: nn.Module, family: Family, capture: Callable[[nn.Module, tuple[Any, ...], Any], None]) -> None:
    """Call a function with the bias of a layer's attention in every forward pass; a family without one has no hook.

    Args:
        layer: of the encoder.
        family: names of its modules.
        capture: a forward hook, called with the attention module, no inputs, and the bias (batch, heads, query, key),
            which added to the products of queries and keys over the root of the head size gives the attention scores.
    """
    if not family.has_attention_bias:
        return
    attention = layer.get_submodule(family.attention)
    if family.shared_bias:  # MPNet computes it once, and gives it to every layer
        attention.register_forward_pre_hook(lambda module, args: capture(module, (), args[2]))
        return

    def compute(module: Any, query: Tensor, key: Tensor, *others: Any, **options: Any) -> Tensor:
        relative: Tensor = getattr(type(module), family.attention_bias)(module, query, key, *others, **options)
        bias = _added_to_scores(query, key, relative, parts=len(module.pos_att_type))
        capture(module, (), bias.view(-1, module.num_attention_heads, *bias.shape[1:]))
        return relative

    setattr(attention, family.attention_bias, MethodType(compute, attention))  # bound: a copy calls its own


def _added_to_scores(query: Tensor, key: Tensor, relative: Tensor, parts: int) -> Tensor:
    """Return the difference between DeBERTa's scores and the products of queries and keys over the root of their size.

    DeBERTa adds the terms of relative positions, and divides all by the root of the size times the number of terms (He
    et al. 2021, equations 2 to 4).

    Args:
        query: (batch x heads, length, head size), like key.
        key: see query.
        relative: the terms of relative positions, already divided: (batch x heads, query, key).
        parts: their number.
    """
    products: Tensor = query @ (key.mT / query.shape[-1] ** 0.5)
    return relative + products * (math.sqrt(1 / (1 + parts)) - 1)
