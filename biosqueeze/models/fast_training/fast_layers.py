"""Run the layers of BERT and of families with the same layers by `layer_functions` in a training on a CPU."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from biosqueeze.models.fast_training.attention import TRAINING, additive_mask
from biosqueeze.models.fast_training.cheap_dropout import DropMask
from biosqueeze.models.fast_training.layer_functions import AttentionParts, FeedForward, Norm, Product, SelfAttention
from biosqueeze.models.layers import encoder_layers

FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert", "electra")  # whose layers have the same modules
_DENSE = 0.95  # share from which leaving out the other tokens costs more than it saves


@contextmanager
def fast_layers(encoder: nn.Module) -> Iterator[None]:
    """Replace the forward passes of the layers in `encode_rows` inside the block, if the family has BERT's layers."""
    layers: list[Any] = list(encoder_layers(encoder)) if _is_supported(encoder) else []
    for layer in layers:
        layer.forward = _FastLayer(layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _is_supported(encoder: Any) -> bool:
    """Return whether the encoder has BERT's layers, the exact GELU, and the attention for training."""
    if not isinstance(encoder, PreTrainedModel) or encoder.config.model_type not in FAMILIES:
        return False
    config: Any = encoder.config
    return config.hidden_act == "gelu" and config._attn_implementation == TRAINING and not config.is_decoder


class EncodedRows(NamedTuple):
    """The outputs of an encoder that losses read."""

    rows: Tensor  # last hidden states of some tokens, in order, (rows, hidden)
    pooled: Tensor | None  # (batch, hidden), of an encoder with a pooler


def encode_rows(
    model: PreTrainedModel, inputs: Mapping[str, Tensor], real: Tensor, wanted: Tensor, *, pooled: bool = False
) -> EncodedRows:
    """Run an encoder for the last hidden states of some tokens.

    Inside `fast_layers` nothing is computed for padding, and in the last layer only keys and values of the other
    tokens. The wanted states and their gradients are the same.

    Args:
        model: with or without a head.
        inputs: of the encoder.
        real: (batch, length) bool, False on padding.
        wanted: (batch, length) bool, whose states are returned.
        pooled: whether the output of the pooler is needed, which reads the first token.
    """
    encoder = model.base_model
    layers = fast_layers_of(encoder)
    if not layers:
        output = encoder(**inputs)
        return EncodedRows(output.last_hidden_state[wanted], output.get("pooler_output"))
    selection = _Selection.of(real, wanted, first=pooled)
    for layer in layers:
        layer.selection = selection if layer is layers[-1] else replace(selection, places=None)
    try:
        output = encoder(**inputs)
    finally:
        for layer in layers:
            layer.selection = None
    return EncodedRows(output.last_hidden_state[selection.wanted], output.get("pooler_output") if pooled else None)


def fast_layers_of(encoder: nn.Module) -> "list[_FastLayer]":
    """Return the layers of an encoder in fp32 on a CPU, inside `fast_layers` and with gradients; else none."""
    if not _is_supported(encoder) or not torch.is_grad_enabled():
        return []
    weight = next(encoder.parameters())
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        return []
    forwards = [layer.forward for layer in encoder_layers(encoder)]
    return [forward for forward in forwards if isinstance(forward, _FastLayer)]


@dataclass(frozen=True)
class _Selection:
    """The tokens of a batch that are computed."""

    batch: int
    length: int
    tokens: Tensor | None  # those without padding as places in (batch x length), (tokens,); None: all
    places: Tensor | None  # positions of the queries of the last layer, (batch, queries); None: all
    wanted: Tensor  # bool, of the encoder's output: (batch, queries), (1, tokens) or (batch, length)

    @classmethod
    def of(cls, real: Tensor, wanted: Tensor, *, first: bool) -> Self:
        """Select all real tokens, and in the last layer those that are wanted, and the first of each text if so."""
        size = (len(real), real.shape[1])
        tokens = None if real.sum() > _DENSE * real.numel() else real.flatten().nonzero().squeeze(1)
        if not first and wanted.sum() > _DENSE * real.sum():
            return cls(*size, tokens, None, wanted if tokens is None else wanted.flatten()[tokens].unsqueeze(0))
        computed = wanted.clone()
        computed[:, 0] |= first
        queries = max(1, int(computed.sum(dim=1).max()))
        places = torch.argsort(computed, dim=1, descending=True, stable=True)[:, :queries]
        return cls(*size, tokens, places, wanted.gather(1, places))

    def rows(self, hidden: Tensor) -> Tensor:
        """Return the rows (tokens, hidden) of all hidden states, or of those without padding."""
        rows = hidden.flatten(0, 1)
        return rows if self.tokens is None or len(rows) == len(self.tokens) else rows[self.tokens]

    def chosen(self) -> Tensor | None:
        """Return the rows of the queries, (batch x queries,)."""
        if self.places is None:
            return None
        flat = (self.places + torch.arange(self.batch)[:, None] * self.length).flatten()
        if self.tokens is None:
            return flat
        rows = torch.zeros(self.batch * self.length, dtype=torch.long)
        rows[self.tokens] = torch.arange(len(self.tokens))
        return rows[flat]

    def mask(self, mask: Tensor) -> Tensor:
        """Return the rows of an attention mask for the queries, (batch, 1, 1 or queries, length)."""
        if self.places is None or mask.shape[2] == 1:
            return mask
        texts = torch.arange(self.batch)[:, None]
        return mask.expand(self.batch, -1, -1, -1)[texts, 0, self.places].unsqueeze(1)

    def shaped(self, rows: Tensor) -> Tensor:
        """Return rows as (batch, length or queries, hidden), or (1, tokens, hidden)."""
        is_flat = self.tokens is not None and self.places is None
        return rows.view(1 if is_flat else self.batch, -1, rows.shape[1])


class _FastLayer:
    """The forward pass of one layer: the functions where tokens are selected, else the stock one."""

    def __init__(self, layer: Any) -> None:
        attention = layer.attention.self
        self.stock = layer.forward
        self.attention = attention
        self.dropouts = (attention.dropout, layer.attention.output.dropout, layer.output.dropout)
        self.norms = (layer.attention.output.LayerNorm, layer.output.LayerNorm)
        self.inputs = (attention.query, attention.key, attention.value)
        self.output, self.up, self.down = layer.attention.output.dense, layer.intermediate.dense, layer.output.dense
        self.selection: _Selection | None = None

    def __call__(self, hidden_states: Tensor, attention_mask: Tensor | None = None, *args: Any, **options: Any) -> Any:
        if self.selection is None:
            return self.stock(hidden_states, attention_mask, *args, **options)
        low = torch.bfloat16 if torch.is_autocast_enabled("cpu") else torch.float32
        return self.compute(hidden_states.float(), attention_mask, self.selection, low)

    def compute(self, hidden: Tensor, mask: Tensor | None, selection: _Selection, low: torch.dtype) -> Tensor:
        """Compute the layer with matrix products in the type `low`; shape as of `_Selection.shaped`."""
        drops = [DropMask.drawn(module.p if module.training else 0.0) for module in self.dropouts]
        norms = [Norm(m.weight, m.bias, m.eps, drop) for m, drop in zip(self.norms, drops[1:], strict=True)]
        parts = AttentionParts(
            selection.batch,
            self.attention.num_attention_heads,
            self.attention.scaling,
            None if mask is None else additive_mask(selection.mask(mask), low),
            selection.tokens,
            selection.length,
            selection.chosen(),
            drops[0],
            _copied(low, *self.inputs),
            _copied(low, self.output),
            norms[0],
        )
        trained = _parameters(*self.inputs, self.output, self.norms[0])
        attended: Tensor = SelfAttention.apply(selection.rows(hidden), parts, *trained)  # type: ignore[no-untyped-call]
        trained = _parameters(self.up, self.down, self.norms[1])
        maps = _copied(low, self.up), _copied(low, self.down), norms[1]
        result: Tensor = FeedForward.apply(attended, *maps, *trained)  # type: ignore[no-untyped-call]
        return selection.shaped(result)


@torch.no_grad()
def _copied(low: torch.dtype, *modules: nn.Linear) -> Product:
    """Return an affine map, or several of the same inputs in one, in another type.

    A copy is made in each pass: torch's fused optimiser does not count its changes in the versions of the weights.
    """
    weight, bias = ([getattr(module, name).to(low) for module in modules] for name in ("weight", "bias"))
    return Product(weight[0], bias[0]) if len(modules) == 1 else Product(torch.cat(weight), torch.cat(bias))


def _parameters(*modules: nn.Module) -> list[nn.Parameter]:
    return [getattr(module, name) for module in modules for name in ("weight", "bias")]
