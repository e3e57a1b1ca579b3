"""Floating-point operations of a model, from its shape.

A matrix product of (m, k) and (k, n) has 2 m k n operations. The forward pass has 2 per weight and position, attention
4 x width x length per position and layer (scores and weighted sum), and the vocabulary projection is computed at the
masked positions alone. The backward pass has twice as many (Kaplan et al. 2020, section 2.1; Hoffmann et al. 2022,
appendix F). Embedding look-ups, layer norms and activations are not counted.
"""

from collections.abc import Iterator
from typing import NamedTuple

from torch import nn
from transformers import PreTrainedModel

from biosqueeze.models.families import family_of

_PER_SEQUENCE = ("pooler", "seq_relationship", "sop_classifier", "classifier")
_PER_POSITION = ("discriminator_predictions",)


class Work(NamedTuple):
    """What a model computes, of one sequence."""

    length: int  # positions, padding included
    masked: float  # positions that are predicted
    paired: bool = False  # whether a loss reads the first token


def training_flops(model: PreTrainedModel, work: Work) -> float:
    """Return the operations of forward and backward passes over one sequence.

    Args:
        model: with its head; its weights need no storage.
        work: what is computed.
    """
    return 3 * forward_flops(model, work)


def forward_flops(model: PreTrainedModel, work: Work) -> float:
    """Return the operations of the forward pass over one sequence."""
    return sum(_linear_flops(model, work)) + _attention_flops(model, work.length)


def _linear_flops(model: PreTrainedModel, work: Work) -> Iterator[float]:
    inside = f"{model.base_model_prefix}."
    for name, module in model.named_modules():
        if not isinstance(module, nn.Linear):
            continue
        if any(part in _PER_SEQUENCE for part in name.split(".")):
            places = float(work.paired)
        elif name.startswith((inside, *_PER_POSITION)):
            places = float(work.length)
        else:
            places = work.masked
        yield 2 * module.weight.numel() * places * _repeats(model, name)


def _attention_flops(model: PreTrainedModel, length: int) -> float:
    family = family_of(model.config)
    parts = 3 if family.fuses_projections else 1  # queries, keys and values
    layers = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and f".{name}".endswith(f".{family.query}")
    ]
    return sum(4 * module.out_features / parts * length**2 * _repeats(model, name) for name, module in layers)


def _repeats(model: PreTrainedModel, name: str) -> float:
    """Return how often a module runs in a forward pass: ALBERT's layers share their weights."""
    family = family_of(model.config)
    if not (family.shares_layers and f".{family.layers}." in f".{name}"):
        return 1.0
    config = model.config
    return float(config.num_hidden_layers / config.num_hidden_groups)
