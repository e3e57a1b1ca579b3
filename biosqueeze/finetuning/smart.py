"""Smoothness against small adversarial noise on the embeddings (SMART: Jiang et al. 2020, section 3.1).

The term is the mean over what is scored of l(f(x + noise), f(x)), where the noise is found by gradient ascent within a
small ball (equations 1 to 3): l is the symmetric Kullback-Leibler divergence of the predicted distributions, or the
squared difference of predicted numbers. The paper leaves the size of the steps to its code. Here a token's noise is at
most RADIUS times the size of its sequence's word embeddings (root mean square), and one step of ascent may go that far.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from biosqueeze.models.output_tensors import OutputTensors
from biosqueeze.training.rng_state import RngState

Batch = Mapping[str, Tensor]

RADIUS = 0.1  # of the embeddings' size, as the noise of FreeLB (Zhu et al. 2020) comes to
START = 0.01  # standard deviation of the noise before the first step, as a share of the radius
STEPS = 1
_TINY = 1e-30


@dataclass(frozen=True)
class Perturbed:
    """A model's forward pass under noise on its word embeddings."""

    predict: Callable[[], Tensor]  # the logits for the batch at hand
    embedding: nn.Module  # the word embedding, whose output (batch, length, width) takes the noise
    chance: RngState  # the state of the random generators in the clean pass

    def __call__(self, noise: Tensor) -> Tensor:
        """The logits with noise (batch, length, width), dropout as in the clean pass."""
        handle = self.embedding.register_forward_hook(lambda _module, _inputs, output: output + noise)
        try:
            with self.chance.replay():
                return self.predict()
        finally:
            handle.remove()


def smoothness(perturbed: Perturbed, clean: Tensor, batch: Batch, tensors: OutputTensors) -> Tensor:
    """How far adversarial noise moves the prediction. Scalar, at least 0, with gradients through both predictions.

    Args:
        perturbed: the model.
        clean: its logits without noise.
        batch: what it read; `attention_mask` (batch, length) tells padding, which gets no noise.
        tensors: of the output type.
    """
    noise = adversarial_noise(perturbed, clean.detach(), batch, tensors)
    return tensors.mean_distance(perturbed(noise), clean, batch)


def adversarial_noise(perturbed: Perturbed, clean: Tensor, batch: Batch, tensors: OutputTensors) -> Tensor:
    """Noise (batch, length, width) that moves the prediction away from `clean`, within the ball."""
    real = batch["attention_mask"].unsqueeze(-1)  # (batch, length, 1)
    with torch.no_grad():
        embedded = perturbed.embedding(batch["input_ids"])
        radius = RADIUS * _size(embedded, real)  # (batch, 1, 1)
        noise = torch.randn_like(embedded) * START * radius * real
    for _ in range(STEPS):
        noise.requires_grad = True
        moved = tensors.mean_distance(perturbed(noise), clean, batch)
        (slope,) = torch.autograd.grad(moved, noise)
        steepest = slope.abs().amax(dim=-1, keepdim=True).clamp(min=_TINY)  # (batch, length, 1)
        noise = (noise.detach() + radius * slope / steepest).clamp(-radius, radius) * real
    return noise.detach()


def _size(embedded: Tensor, real: Tensor) -> Tensor:
    """Root mean square of the embeddings of each sequence's real tokens: (batch, 1, 1)."""
    squares = (embedded.square() * real).sum(dim=(1, 2), keepdim=True)
    return (squares / (real.sum(dim=1, keepdim=True) * embedded.shape[-1])).sqrt()


def word_embedding(model: Any) -> nn.Module:
    """The module that looks the input ids up."""
    embedding: nn.Module = model.get_input_embeddings()
    return embedding
