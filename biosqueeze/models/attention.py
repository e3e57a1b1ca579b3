"""Attention that is trained on a CPU in bf16: torch's fused one is slow there, going backwards most of all."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

FUSED = "sdpa"
TRAINED = "biosqueeze"
# What reads a mask of (batch, 1, length, length) in bool, as packed blocks have it.
READ_BLOCKS = frozenset({FUSED, TRAINED})


@contextmanager
def quick_to_train(model: nn.Module) -> Iterator[None]:
    """Have an encoder that runs on SDPA use `attend` meanwhile; no other module is touched."""
    if not isinstance(model, PreTrainedModel) or model.config._attn_implementation != FUSED:
        yield
        return
    model.set_attn_implementation(TRAINED)
    try:
        yield
    finally:
        model.set_attn_implementation(FUSED)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """SDPA, but by two matrix products where a gradient is wanted of bf16 on a CPU.

    There torch's flash kernel takes three to six times as long on rows of up to 128 tokens, and what stands in for it
    under dropout twice as long, as `examples/benchmarks/training_attention.py` shows.
    One map a layer is kept for the way back.

    Args:
        module: the attention that calls.
        query: (batch, heads, length, head size), and so are key and value.
        key: see query.
        value: see query.
        attention_mask: (batch, 1, 1 or length, length), True where a token may look, or None where it may everywhere.
        options: `dropout` of the map, 0 if left out; `scaling` of the products, 1 / sqrt(head size) if left out.

    Returns:
        (batch, length, heads, head size), and no map, as transformers wants it.
    """
    if query.dtype != torch.bfloat16 or query.device.type != "cpu" or not torch.is_grad_enabled():
        fused: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        return fused
    scaling = options.get("scaling")
    scores = (query * (query.shape[-1] ** -0.5 if scaling is None else scaling)) @ key.transpose(2, 3)
    if attention_mask is not None:
        scores = scores + _added(attention_mask, scores.dtype)
    attended = nn.functional.dropout(torch.softmax(scores, dim=-1), options.get("dropout", 0.0)) @ value
    return attended.transpose(1, 2).contiguous(), None


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a token may look, and the lowest number elsewhere."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)


AttentionInterface.register(TRAINED, attend)
AttentionMaskInterface.register(TRAINED, sdpa_mask)
