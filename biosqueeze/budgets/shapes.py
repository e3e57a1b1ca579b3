"""Shapes that a checkpoint can be cut to: layers, heads with the hidden size that follows, and neurons."""

import contextlib
import itertools
from collections.abc import Iterator
from typing import NamedTuple

from transformers import PreTrainedConfig

from biosqueeze.errors import UsageError
from biosqueeze.models.cuts.depth import parse_layers_of, shallow_config
from biosqueeze.models.cuts.shares import widths_of_share
from biosqueeze.models.cuts.width import Widths, choose_widths, narrowed_config
from biosqueeze.models.families import family_of
from biosqueeze.models.layers import query_group

_FFN_STEPS = 16  # shares of the neurons


class Shape(NamedTuple):
    """Sizes of an encoder; the hidden size is heads x the original's head size."""

    layers: int
    heads: int
    ffn: int

    def covers(self, other: "Shape") -> bool:
        """Whether no size of the other is larger."""
        return all(mine >= theirs for mine, theirs in zip(self, other, strict=True))


def own_shape(config: PreTrainedConfig) -> Shape:
    """Return the shape of a config."""
    family = family_of(config)
    return Shape(*(int(getattr(config, key)) for key in (family.layers_key, family.heads_key, family.ffn_key)))


def shapes_of(config: PreTrainedConfig, *, narrows: bool) -> tuple[Shape, ...]:
    """Return the shapes that a model can be cut to, its own included.

    Neurons are sixteenths of the original's, rounded as by --width.

    Args:
        config: the model's.
        narrows: whether heads and neurons may be cut, and not only layers.

    Raises:
        UsageError: no number of layers can be chosen for this model.
    """
    own = own_shape(config)
    if own.layers > 1:
        parse_layers_of(config, "1")
    heads, neurons = {own.heads}, {own.ffn}
    if narrows:
        heads |= set(_possible_heads(config))
        neurons |= {widths_of_share(config, step / _FFN_STEPS)[0] for step in range(1, _FFN_STEPS)}
    sizes = itertools.product(range(1, own.layers + 1), sorted(heads), sorted(neurons))
    return tuple(Shape(*each) for each in sizes)


def _possible_heads(config: PreTrainedConfig) -> Iterator[int]:
    group = query_group(config)
    for heads in range(group, own_shape(config).heads + 1, group):
        with contextlib.suppress(UsageError):  # a stock ELECTRA cannot have the hidden size of its embeddings
            choose_widths(config, None, heads, None)
            yield heads


def widths_for(config: PreTrainedConfig, shape: Shape) -> Widths:
    """Return the widths to cut a model to for a shape."""
    own = own_shape(config)
    ffn, heads = (size if size != full else None for size, full in ((shape.ffn, own.ffn), (shape.heads, own.heads)))
    return choose_widths(config, ffn, heads, None)


def config_for(config: PreTrainedConfig, shape: Shape) -> PreTrainedConfig:
    """Return the config of a model with its first layers, cut to a shape."""
    return shallow_config(narrowed_config(config, widths_for(config, shape)), range(shape.layers))


def hidden_size(config: PreTrainedConfig, shape: Shape) -> int:
    """Return the hidden size of a shape."""
    return int(config.hidden_size) * shape.heads // own_shape(config).heads
