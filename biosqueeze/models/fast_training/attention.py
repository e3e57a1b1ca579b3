"""Attention for training on a CPU in bf16 or with dropout, where torch's fused kernels are slow."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from biosqueeze.models.fast_training.cheap_dropout import dropout

SDPA = "sdpa"
TRAINING = "biosqueeze"
FIRST_ALONE = "biosqueeze_first_query_alone"
"""Attribute of an attention module: its first query is computed, and the result is that of all queries."""
# Implementations that support a bool mask (batch, 1, length, length), which packed blocks need.
BLOCK_MASK_IMPLEMENTATIONS = frozenset({SDPA, TRAINING})


@contextmanager
def training_attention(model: nn.Module) -> Iterator[None]:
    """Use `attention_forward` inside the block, if the model is an encoder with SDPA; other models are unchanged."""
    if not isinstance(model, PreTrainedModel) or model.config._attn_implementation != SDPA:
        yield
        return
    model.set_attn_implementation(TRAINING)
    try:
        yield
    finally:
        model.set_attn_implementation(SDPA)


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Compute attention as `_attention` does: of all queries, or of the first alone where the module is marked."""
    if not hasattr(module, FIRST_ALONE):
        return _attention(module, query, key, value, attention_mask, **options)
    mask = None if attention_mask is None else attention_mask[:, :, :1]
    attended, _ = _attention(module, query[:, :, :1], key, value, mask, **options)
    return attended.expand(-1, query.shape[2], -1, -1), None


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Compute attention: by two matrix products if bf16 or dropout on a CPU needs gradients, and by SDPA otherwise.

    In bf16 torch's flash kernel takes three to six times as long on rows of up to 128 tokens, and the kernel that
    replaces it under dropout twice as long, as `examples/benchmarks/training_attention.py` measures. In fp32 that
    kernel draws torch's masks, which take longer than `cheap_dropout`. One attention map per layer is kept for the
    backward pass.

    Args:
        module: the attention module that calls this function.
        query: (batch, heads, length, head size).
        key: as query; or fewer heads, each shared by as many consecutive query heads.
        value: as key.
        attention_mask: (batch, 1, 1 or length, length), True where attention is allowed; None for everywhere.
        options: `dropout` of the attention map, default 0; `scaling` of the products, default 1 / sqrt(head size).

    Returns:
        (batch, length, heads, head size), and None for the attention map, as transformers' interface requires.
    """
    # EuroBERT's queries and keys are float32 under autocast, after their rotation.
    is_slow = value.dtype == torch.bfloat16 or (options.get("dropout") and not torch.compiler.is_compiling())
    if not is_slow or query.device.type != "cpu" or not torch.is_grad_enabled():
        fused: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        return fused
    group = query.shape[1] // key.shape[1]  # query heads that share a key and a value head
    key, value = (part.repeat_interleave(group, dim=1) if group > 1 else part for part in (key, value))
    scaling = options.get("scaling")
    scores = (query * (query.shape[-1] ** -0.5 if scaling is None else scaling)) @ key.transpose(2, 3)
    if attention_mask is not None:
        scores = scores + additive_mask(attention_mask, scores.dtype)
    attended = dropout(torch.softmax(scores, dim=-1), options.get("dropout", 0.0)) @ value
    return attended.transpose(1, 2).contiguous(), None


def additive_mask(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 0 where attention is allowed, and the lowest number of the type elsewhere."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)


AttentionInterface.register(TRAINING, attention_forward)
AttentionMaskInterface.register(TRAINING, sdpa_mask)
