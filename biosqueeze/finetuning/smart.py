"""SMART: a loss term for smoothness against small adversarial noise on the embeddings (Jiang et al. 2020, section 3.1).

The term is the mean over the scored units of l(f(x + noise), f(x)), where the noise is found by gradient ascent within
a small ball (equations 1 to 3): l is the symmetric Kullback-Leibler divergence of the predicted distributions, or the
squared difference of predicted numbers. The paper gives no step size; its code does. Here a token's noise is at most
RADIUS times the size of its sequence's word embeddings (root mean square), and one step of ascent may reach that.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from biosqueeze.models.output_tensors import OutputTensors
from biosqueeze.training.resuming.rng_state import RngState

Batch = Mapping[str, Tensor]

RADIUS = 0.1  # of the embeddings' size, as large as the noise of FreeLB (Zhu et al. 2020)
START = 0.01  # standard deviation of the noise before the first step, as a share of the radius
STEPS = 1
_TINY = 1e-30


@dataclass(frozen=True)
class PerturbedForward:
    """A model's forward pass under noise on its word embeddings."""

    predict: Callable[[], Tensor]  # the logits for the batch at hand
    embedding: nn.Module  # the word embedding, whose output (batch, length, width) takes the noise
    rng: RngState  # of the forward pass without noise

    def __call__(self, noise: Tensor) -> Tensor:
        """Return the logits with noise (batch, length, width), and the same dropout as without noise.

        With other units dropped, the term would measure dropout, which moves a prediction far more than the noise does.
        """
        handle = self.embedding.register_forward_hook(lambda _module, _inputs, output: _moved(output, noise))
        try:
            with self.rng.replay():
                return self.predict()
        finally:
            handle.remove()


def _moved(embedded: Tensor, noise: Tensor) -> Tensor:
    """Return embeddings with noise, which is shorter where a Longformer pads its inputs to whole windows."""
    if noise.dim() == embedded.dim():
        noise = functional.pad(noise, (0, 0, 0, embedded.shape[1] - noise.shape[1]))
    return embedded + noise


def smoothness(
    perturbed: PerturbedForward, clean: Tensor, batch: Batch, tensors: OutputTensors, radius: float | None = None
) -> Tensor:
    """Compute the distance of the predictions with and without adversarial noise: scalar, at least 0.

    Gradients flow through both predictions.

    Args:
        perturbed: the forward pass under noise.
        clean: logits without noise.
        batch: model inputs; padding (`attention_mask`, (batch, length)) gets no noise.
        tensors: of the output type.
        radius: the largest noise; None: RADIUS times the size of the embeddings.
    """
    noise = adversarial_noise(perturbed, clean.detach(), batch, tensors, radius)
    return tensors.mean_distance(perturbed(noise), clean, batch)


def adversarial_noise(
    perturbed: PerturbedForward, clean: Tensor, batch: Batch, tensors: OutputTensors, largest_noise: float | None
) -> Tensor:
    """Return noise (batch, length, width) within the ball that moves the prediction away from `clean`."""
    real = batch["attention_mask"].unsqueeze(-1)  # (batch, length, 1)
    with torch.no_grad():
        embedded = perturbed.embedding(batch["input_ids"])
        radius = RADIUS * _size(embedded, real)  # (batch, 1, 1)
        if largest_noise is not None:
            radius = torch.full_like(radius, largest_noise)
        noise = torch.randn_like(embedded) * START * radius * real
    for _ in range(STEPS):
        noise.requires_grad = True
        with torch.enable_grad():  # losses are computed without gradients too
            distance = tensors.mean_distance(perturbed(noise), clean, batch)
        (gradient,) = torch.autograd.grad(distance, noise)
        largest = gradient.abs().amax(dim=-1, keepdim=True).clamp(min=_TINY)  # (batch, length, 1)
        noise = (noise.detach() + radius * gradient / largest).clamp(-radius, radius) * real
    return noise.detach()


def _size(embedded: Tensor, real: Tensor) -> Tensor:
    """Return the root mean square of the embeddings of each sequence's real tokens: (batch, 1, 1)."""
    squares = (embedded.square() * real).sum(dim=(1, 2), keepdim=True)
    return (squares / (real.sum(dim=1, keepdim=True) * embedded.shape[-1])).sqrt()


def word_embedding(model: Any) -> nn.Module:
    """Return the embedding of the input ids."""
    embedding: nn.Module = model.get_input_embeddings()
    return embedding
