"""Make another layer the first one of ModernBERT, whose first layer has no norm before its attention.

The embeddings are normalised already, so stock models omit that norm. A layer that becomes the first one loses its own.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from biosqueeze.models.families import family_of
from biosqueeze.models.layers import encoder_layers
from biosqueeze.progress import warn


@torch.no_grad()
def with_first_layer(model: PreTrainedModel, first: int) -> PreTrainedModel:
    """Return a copy of a model in which a layer can be the first one; the model itself where nothing has to change.

    The norm subtracts the mean, divides by the standard deviation and scales. The projection after it takes over the
    mean and the scale exactly; the deviation, which differs between tokens, becomes one constant: the best one for all
    tokens of the vocabulary by least squares.

    Args:
        model: of any family.
        first: the lowest layer that is kept.
    """
    family = family_of(model.config)
    layers = encoder_layers(model)
    if first == 0 or not family.input_norm or not isinstance(layers[0].get_submodule(family.input_norm), nn.Identity):
        return model
    changed = copy.deepcopy(model)
    layer = encoder_layers(changed)[first]
    norm: Any = layer.get_submodule(family.input_norm)
    states = _embedded_vocabulary(changed)
    centred = states - states.mean(dim=-1, keepdim=True)
    expected = centred / (centred.square().mean(dim=-1, keepdim=True) + norm.eps).sqrt()
    constant = (centred * expected).sum() / centred.square().sum()
    projection: Any = layer.get_submodule(family.query)
    bias = 0 if norm.bias is None else norm.bias
    folded_bias = 0 if projection.bias is None else bias  # without a bias of its own a projection cannot take it over
    inputs = expected * norm.weight + bias
    error = float((centred * constant * norm.weight + folded_bias - inputs).norm() / inputs.norm())
    _fold(projection, norm, constant)
    layer.set_submodule(family.input_norm, nn.Identity())
    lost = "its division by token, which becomes one constant"
    if norm.bias is not None and projection.bias is None:
        lost += ", and its bias"
    warn(
        f"layer {first} becomes the first, which has no norm before its attention in a {family.name}: its projection "
        f"takes the norm over, except for {lost} (error {error:.1%} of its input); keep layer 0 to keep all norms"
    )
    return changed


def _embedded_vocabulary(model: PreTrainedModel) -> Tensor:
    """Compute the input of the first layer for every token: (vocabulary, hidden)."""
    embeddings: nn.Module = model.base_model.get_submodule("embeddings")
    states: Tensor = embeddings(input_ids=torch.arange(model.config.vocab_size).unsqueeze(0))[0]
    return states


def _fold(linear: Any, norm: Any, constant: Tensor) -> None:
    """Multiply a projection by the scale of a norm, its centring and the constant, and add the norm's bias."""
    if norm.bias is not None and linear.bias is not None:
        linear.bias += linear.weight @ norm.bias
    scaled = linear.weight * norm.weight * constant  # (outputs, hidden)
    linear.weight.copy_(scaled - scaled.mean(dim=1, keepdim=True))
