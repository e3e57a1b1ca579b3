"""Longformer: windows of attention, tokens with global attention, and an equal form of it for any size and exporters.

The stock attention computes in blocks of a window, whose number depends on the data: exporters cannot follow it, and
it needs all heads of the hidden size. The dense form computes all pairs of tokens and masks those that are too far from
each other: the same outputs, for a memory that grows with the square of the length.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LongformerModel, PreTrainedConfig, PreTrainedModel
from transformers.models.longformer.modeling_longformer import (
    LongformerBaseModelOutputWithPooling,
    LongformerSelfAttention,
)

_NAME = "longformer"
_QUESTION = "LongformerForQuestionAnswering"
_FIRST = "LongformerForSequenceClassification"


def layer_windows(config: PreTrainedConfig) -> list[int]:
    """Return the window of each layer, both sides together; config.json may have one number for all of them."""
    windows = config.attention_window
    return [windows] * config.num_hidden_layers if isinstance(windows, int) else list(windows)


def keep_windows(config: PreTrainedConfig, layers: Sequence[int]) -> None:
    """Keep the windows of some layers, counted from 0; layers beyond the last have its window. Others are unchanged."""
    if config.model_type == _NAME:
        windows = layer_windows(config)
        config.attention_window = [windows[min(layer, len(windows) - 1)] for layer in layers]


def mark_question(model: PreTrainedModel) -> None:
    """Give the question global attention in a model for question answering.

    The stock class does so too, but stops if a row has not three separators, as a text without a question.
    """
    if type(model).__name__ == _QUESTION:
        model.register_forward_pre_hook(_mark_question, with_kwargs=True)


def _mark_question(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if kwargs.get("global_attention_mask") is not None:
        return args, kwargs
    ids: Tensor = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
    config: Any = module.config
    separators = (ids == config.sep_token_id).long()
    question = (separators.cumsum(dim=1) == 0) & (separators.sum(dim=1, keepdim=True) > 0)
    return args, {**kwargs, "global_attention_mask": question.long()}


def global_tokens(entities: Tensor) -> Tensor:
    """Return which tokens have global attention in a relation: the first, and the first piece of each entity.

    Args:
        entities: the bits of `tasks.encoding.entities` on the pieces of each entity, (batch, length).

    Returns:
        0 or 1, (batch, length).
    """
    marked = torch.zeros_like(entities)
    marked[:, 0] = 1
    for bit in (1, 2):
        pieces = entities.bitwise_and(bit) != 0
        marked |= (pieces & (pieces.cumsum(dim=1) == 1)).to(marked.dtype)
    return marked


def use_dense_attention(model: PreTrainedModel) -> PreTrainedModel:
    """Compute a Longformer's attention over all pairs of tokens, in place; models of other families are unchanged.

    The outputs stay the same. The size of the heads may differ from hidden size / heads, and any length is exported.
    """
    if model.config.model_type != _NAME:
        return model
    count = {_FIRST: 1, _QUESTION: None}.get(type(model).__name__, 0)
    for module in model.modules():
        dense: Any = _DENSE.get(type(module))
        if dense:
            module.__class__ = dense
        if isinstance(module, _DenseSelfAttention):
            module.global_tokens = count
    return model


def with_dense_attention(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of a Longformer that shares its weights and has dense attention; other models as they are."""
    if model.config.model_type != _NAME:
        return model
    weights = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return use_dense_attention(copy.deepcopy(model, weights))


class _DenseModel(LongformerModel):
    """The trunk, without padding to whole windows, and without a look at the data for tokens with global attention."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        output_hidden_states: bool | None = None,
        **_options: Any,
    ) -> LongformerBaseModelOutputWithPooling:
        real = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        marks = real - 1 if global_attention_mask is None else real - 1 + real * global_attention_mask
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        states = [self.embeddings(input_ids=input_ids, token_type_ids=types)]
        for layer in self.encoder.layer:
            states.append(layer(states[-1], attention_mask=marks)[0])
        return LongformerBaseModelOutputWithPooling(
            last_hidden_state=states[-1],
            pooler_output=None if self.pooler is None else self.pooler(states[-1]),
            hidden_states=tuple(states) if output_hidden_states else None,
        )


class _DenseSelfAttention(LongformerSelfAttention):
    """Attention over all pairs of tokens; the masks are those of the stock class."""

    global_tokens: int | None
    """How many tokens at the start may have global attention; None for any tokens."""

    def forward(  # type: ignore[override]
        self, hidden_states: Tensor, attention_mask: Tensor, **_options: Any
    ) -> tuple[Tensor]:
        """Compute the attention's outputs: (batch, length, heads x head size).

        Args:
            hidden_states: (batch, length, hidden size).
            attention_mask: (batch, length), -1 on padding, 1 on tokens with global attention, else 0.
        """
        real, is_global = attention_mask >= 0, attention_mask > 0
        positions = torch.arange(hidden_states.shape[1], device=hidden_states.device)
        near = (positions[:, None] - positions).abs() <= self.one_sided_attn_window_size
        seen = real[:, None, :] & (near | is_global[:, None, :])  # (batch, query, key)
        outputs = self._attend(hidden_states, hidden_states, seen, (self.query, self.key, self.value))
        outputs = torch.where(real[:, :, None], outputs, 0.0)
        if self.global_tokens == 0:
            return (outputs,)
        count = self.global_tokens
        start = hidden_states[:, :count]
        everywhere = real[:, None, :].expand(-1, start.shape[1], -1)
        projections = self.query_global, self.key_global, self.value_global
        globally = self._attend(start, hidden_states, everywhere, projections)
        chosen = torch.where(is_global[:, :count, None], globally, outputs[:, :count])
        return (chosen if count is None else torch.cat([chosen, outputs[:, count:]], dim=1),)

    def _attend(
        self, queried: Tensor, states: Tensor, seen: Tensor, projections: tuple[nn.Linear, nn.Linear, nn.Linear]
    ) -> Tensor:
        queries, keys, values = (
            linear(inputs).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for linear, inputs in zip(projections, (queried, states, states), strict=True)
        )
        scores = queries @ keys.transpose(2, 3) / self.head_dim**0.5  # (batch, heads, query, key)
        scores = scores.masked_fill(~seen[:, None], torch.finfo(scores.dtype).min)
        attended: Tensor = (scores.softmax(dim=-1) @ values).transpose(1, 2).flatten(2)
        return attended


_DENSE = {LongformerModel: _DenseModel, LongformerSelfAttention: _DenseSelfAttention}
