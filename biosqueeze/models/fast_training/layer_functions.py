"""The two halves of a BERT layer as autograd functions, for training on a CPU.

They compute what the stock modules compute, in bf16 under autocast: matrix products in bf16, the rest in fp32.
Queries, keys and values come from one product. The GELU and the dropout masks are computed again in the backward pass,
for which about half as much is kept.

BERT's layer is post-norm (Vaswani et al. 2017, section 3.1; Devlin et al. 2019): LayerNorm(x + Dropout(f(x))).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from biosqueeze.models.fast_training.cheap_dropout import DropMask
from biosqueeze.models.full_precision import full

_ALL = [True, True, True]


@dataclass(frozen=True)
class Norm:
    """A layer norm of the sum of a residual and an update with dropout."""

    weight: Tensor  # (hidden,)
    bias: Tensor  # (hidden,)
    epsilon: float
    dropout: DropMask

    def forward(self, residual: Tensor, update: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the output, and what the backward pass needs: the sum, its mean and its inverse deviation.

        Args:
            residual: (rows, hidden).
            update: (rows, hidden).
        """
        kept = self.dropout.applied(update).to(residual.dtype)
        total = torch.add(residual, kept, alpha=self.dropout.scale)
        size = list(self.weight.shape)
        return *torch.native_layer_norm(total, size, self.weight, self.bias, self.epsilon), total

    def backward(self, gradient: Tensor, saved: Sequence[Tensor], low: torch.dtype) -> tuple[Tensor, ...]:
        """Return the gradients of the residual, of the update (in the type `low`), of the weight and of the bias."""
        mean, deviation, total = saved
        size = list(self.weight.shape)
        of_total, *of_parameters = torch.ops.aten.native_layer_norm_backward(
            gradient, total, size, mean, deviation, self.weight, self.bias, _ALL
        )
        of_update = self.dropout.applied((of_total * self.dropout.scale).to(low))
        return of_total, of_update, *of_parameters


@dataclass(frozen=True)
class Product:
    """An affine map with weights in the type of the computation."""

    weight: Tensor  # (out, in)
    bias: Tensor  # (out,)

    def forward(self, rows: Tensor) -> Tensor:
        """Map (rows, in) to (rows, out)."""
        return torch.addmm(self.bias, rows, self.weight.t())

    def backward(self, gradient: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of the rows, and in the optimiser's precision those of weight and bias."""
        return gradient @ self.weight, full(gradient.t() @ rows), full(gradient.sum(0))

    def part(self, rows: slice) -> "Product":
        """Return the map to some of the outputs."""
        return Product(self.weight[rows], self.bias[rows])


class FeedForward(torch.autograd.Function):
    """LayerNorm(x + Dropout(W2 GELU(W1 x + b1) + b2))."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, up: Product, down: Product, norm: Norm, *_trained: Tensor) -> Tensor:
        """Compute it.

        Args:
            ctx: of autograd.
            hidden: (rows, hidden) fp32.
            up: W1 and b1.
            down: W2 and b2.
            norm: the layer norm.
            _trained: W1, b1, W2, b2, and weight and bias of the norm, which get the gradients.
        """
        low = hidden.to(up.weight.dtype)
        inner = up.forward(low)  # (rows, ffn)
        output, *saved = norm.forward(hidden, down.forward(functional.gelu(inner)))
        ctx.parts = up, down, norm
        ctx.save_for_backward(low, inner, *saved)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the arguments."""
        up, down, norm = ctx.parts
        low, inner, *saved = ctx.saved_tensors
        of_hidden, of_update, *of_norm = norm.backward(gradients[0], saved, low.dtype)
        of_inner, *of_down = down.backward(of_update, functional.gelu(inner))
        of_inner = torch.ops.aten.gelu_backward(of_inner, inner)
        of_low, *of_up = up.backward(of_inner, low)
        return of_hidden.add_(of_low), None, None, None, *of_up, *of_down, *of_norm


@dataclass(frozen=True)
class AttentionParts:
    """Maps, masks and sizes of one self-attention with its output.

    Rows are the tokens of all texts, one after the other, with or without those of the padding.
    """

    batch: int
    heads: int
    scale: float  # of the products of queries and keys
    mask: Tensor | None  # added to the products, (batch, 1, 1 or queries, keys)
    tokens: Tensor | None  # the place of each row in (batch x length), (rows,); None: the rows include the padding
    length: int
    chosen: Tensor | None  # the rows that have a query, (batch x queries,), equally many of each text; None: all
    dropout: DropMask  # of the attention map
    inputs: Product  # to queries, keys and values: (3 x hidden, hidden)
    output: Product
    norm: Norm

    def project(self, rows: Tensor, queries: Tensor) -> tuple[Tensor, ...]:
        """Return queries, keys and values, with padding, (batch x length, hidden) each."""
        if self.chosen is None:
            return self._padded(self.inputs.forward(rows)).chunk(3, dim=1)
        of_queries, of_keys = slice(rows.shape[1]), slice(rows.shape[1], None)
        keys_and_values = self._padded(self.inputs.part(of_keys).forward(rows))
        return self.inputs.part(of_queries).forward(queries), *keys_and_values.chunk(2, dim=1)

    def project_backward(
        self, heads: tuple[Tensor, ...], rows: Tensor, queries: Tensor, of_residual: Tensor
    ) -> tuple[Tensor, ...]:
        """Return the gradients of all rows, and of weight and bias of query, key and value in turn.

        Args:
            heads: gradients of queries, keys and values, (batch x heads, length, head size) each.
            rows: which keys and values were computed from, (rows, hidden).
            queries: the rows that queries were computed from.
            of_residual: gradient of these as the residual, in fp32; it is overwritten.
        """
        size = rows.shape[1]
        of_query, of_key, of_value = heads
        if self.chosen is None:
            of_maps = self._unpadded(self._joined((of_query, of_key, of_value), (self.scale, 1.0, 1.0)))
            of_rows, weight, bias = self.inputs.backward(of_maps, rows)
            return of_residual.add_(of_rows), *_interleaved(weight.chunk(3), bias.chunk(3))
        of_maps = self._joined((of_query,), (self.scale,))
        first, *of_first = self.inputs.part(slice(size)).backward(of_maps, queries)
        of_maps = self._unpadded(self._joined((of_key, of_value), (1.0, 1.0)))
        others, weight, bias = self.inputs.part(slice(size, None)).backward(of_maps, rows)
        of_rows = full(others).index_add_(0, self.chosen, of_residual.add_(first))
        return of_rows, *of_first, *_interleaved(weight.chunk(2), bias.chunk(2))

    def split_queries(self, rows: Tensor, scale: float) -> Tensor:
        """Split rows that have queries into scaled heads, (batch x heads, queries, head size)."""
        return self.split(self._padded(rows) if self.chosen is None else rows, scale)

    def split(self, rows: Tensor, scale: float = 1.0) -> Tensor:
        """Split (batch x length, hidden) into scaled heads, (batch x heads, length, head size)."""
        parts = rows.view(self.batch, -1, self.heads, rows.shape[1] // self.heads).transpose(1, 2)
        return _scaled_copy(parts, rows.new_empty(parts.shape), scale).flatten(0, 1)

    def join_queries(self, heads: Tensor, scale: float) -> Tensor:
        """Join scaled heads of the queries, (batch x heads, queries, head size), to rows."""
        rows = self._joined((heads,), (scale,))
        return self._unpadded(rows) if self.chosen is None else rows

    def _joined(self, tensors: Sequence[Tensor], scales: Sequence[float]) -> Tensor:
        """Join scaled heads (batch x heads, length, head size) to (batch x length, tensors x hidden)."""
        length, size = tensors[0].shape[1:]
        rows = tensors[0].new_empty(self.batch, length, len(tensors), self.heads, size)
        for number, (heads, scale) in enumerate(zip(tensors, scales, strict=True)):
            _scaled_copy(heads.view(self.batch, self.heads, length, size).transpose(1, 2), rows[:, :, number], scale)
        return rows.view(self.batch * length, -1)

    def _padded(self, rows: Tensor) -> Tensor:
        """Put rows to their places in (batch x length, hidden), with 0 in the padding."""
        if self.tokens is None:
            return rows
        return rows.new_zeros(self.batch * self.length, rows.shape[1]).index_copy_(0, self.tokens, rows)

    def _unpadded(self, padded: Tensor) -> Tensor:
        return padded if self.tokens is None else padded[self.tokens]

    def probabilities(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the attention map without dropout, (batch x heads, queries, keys)."""
        scores = torch.bmm(queries, keys.transpose(1, 2))
        if self.mask is not None:
            scores.view(self.batch, self.heads, *scores.shape[1:]).add_(self.mask)
        return torch.softmax(scores, dim=-1)


def _interleaved(weights: Sequence[Tensor], biases: Sequence[Tensor]) -> list[Tensor]:
    return [tensor for both in zip(weights, biases, strict=True) for tensor in both]


def _scaled_copy(source: Tensor, target: Tensor, scale: float) -> Tensor:
    return target.copy_(source) if scale == 1 else torch.mul(source, scale, out=target)


class SelfAttention(torch.autograd.Function):
    """LayerNorm(x + Dropout(W softmax(Q K^T / sqrt(head size)) V + b)), for all rows x or some of them."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, parts: AttentionParts, *_trained: Tensor) -> Tensor:
        """Compute it: (rows with a query, hidden).

        Args:
            ctx: of autograd.
            rows: (rows, hidden) fp32.
            parts: the maps.
            _trained: weight and bias of query, key, value, output and norm, which get the gradients.
        """
        low = rows.to(parts.inputs.weight.dtype)
        of_queries = low if parts.chosen is None else low[parts.chosen]
        projected = zip(parts.project(low, of_queries), (parts.scale, 1.0, 1.0), strict=True)
        query, key, value = (parts.split(part, scale) for part, scale in projected)
        map_ = parts.probabilities(query, key)
        attended = parts.join_queries(torch.bmm(parts.dropout.applied(map_), value), parts.dropout.scale)
        residual = rows if parts.chosen is None else rows[parts.chosen]
        output, *saved = parts.norm.forward(residual, parts.output.forward(attended))
        ctx.parts = parts
        ctx.save_for_backward(low, of_queries, query, key, value, map_, attended, *saved)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the arguments."""
        parts: AttentionParts = ctx.parts
        low, of_queries, query, key, value, map_, attended, *saved = ctx.saved_tensors
        of_residual, of_update, *of_norm = parts.norm.backward(gradients[0], saved, low.dtype)
        of_attended, *of_output = parts.output.backward(of_update, attended)
        of_heads = parts.split_queries(of_attended, parts.dropout.scale)
        of_value = torch.bmm(parts.dropout.applied(map_).transpose(1, 2), of_heads)
        of_map = parts.dropout.applied(torch.bmm(of_heads, value.transpose(1, 2)))
        of_scores = torch._softmax_backward_data(of_map, map_, -1, map_.dtype)
        of_query, of_key = torch.bmm(of_scores, key), torch.bmm(of_scores.transpose(1, 2), query)
        of_rows, *of_inputs = parts.project_backward((of_query, of_key, of_value), low, of_queries, of_residual)
        return of_rows, None, *of_inputs, *of_output, *of_norm
