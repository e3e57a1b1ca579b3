"""Cross entropy over a vocabulary with bf16 logits, of which one copy is kept in memory.

The softmax is computed in fp32 for a few rows at a time, which stay in the processor's cache, and the gradient of the
logits takes the place of the logits. Autograd would keep the logits in bf16 and fp32, their logarithms and gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from biosqueeze.models.fast_training.layer_functions import Product
from biosqueeze.models.full_precision import full

_ROWS = 64

# Called with the probabilities, (rows, vocabulary), of a slice of the rows.
Observer = Callable[[Tensor, slice], None]


def vocabulary_loss(
    hidden: Tensor, decoder: nn.Linear, labels: Tensor, low: torch.dtype, observe: Observer | None = None
) -> Tensor:
    """Sum the cross entropy of the rows. Scalar.

    Args:
        hidden: (rows, width), the inputs of the decoder.
        decoder: the map to the vocabulary, with a bias.
        labels: (rows,).
        low: type of matrix products and logits.
        observe: gets the probabilities of all rows, in order.
    """
    with torch.no_grad():
        product = Product(decoder.weight.to(low), decoder.bias.to(low))
    rows = _Rows(labels, product, observe)
    loss: Tensor = _VocabularyLoss.apply(hidden, rows, decoder.weight, decoder.bias)  # type: ignore[no-untyped-call]
    return loss


@dataclass(frozen=True)
class _Rows:
    """What the loss of the rows is computed with."""

    labels: Tensor
    decoder: Product
    observe: Observer | None

    def loss_and_gradient(self, chunk: Tensor, part: slice) -> tuple[Tensor, Tensor]:
        """Return the loss of a slice of the rows, scalar, and the gradient of its logits, which are `chunk`."""
        probabilities = chunk.softmax(dim=-1)
        if self.observe:
            self.observe(probabilities, part)
        label = self.labels[part].unsqueeze(1)  # (part, 1)
        # The highest probability is no less than 1 / vocabulary, so its logarithm is finite.
        normaliser = chunk.amax(dim=-1) - probabilities.amax(dim=-1).log()  # log of the sum of the exponentials
        loss = (normaliser - chunk.gather(1, label).squeeze(1)).sum()
        return loss, probabilities.scatter_add_(1, label, probabilities.new_full(label.shape, -1.0))


class _VocabularyLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, rows: _Rows, *_trained: Tensor) -> Tensor:
        low = hidden.to(rows.decoder.weight.dtype)
        logits = rows.decoder.forward(low)  # (rows, vocabulary)
        total = full(logits.new_zeros(()))
        for start in range(0, len(logits), _ROWS):
            part = slice(start, start + _ROWS)
            loss, logits[part] = rows.loss_and_gradient(full(logits[part]), part)
            total += loss
        ctx.decoder = rows.decoder
        ctx.save_for_backward(low, logits)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        low, of_logits = ctx.saved_tensors
        of_hidden, *of_trained = ctx.decoder.backward(of_logits, low)
        return full(of_hidden) * gradients[0], None, *(tensor.mul_(gradients[0]) for tensor in of_trained)
