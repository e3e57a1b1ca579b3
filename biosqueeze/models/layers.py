"""The layers of an encoder in execution order, and the sizes of their attention."""

from typing import Any

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from biosqueeze.models.families import family_of
from biosqueeze.models.longformer import layer_windows

GLOBAL, LOCAL = "full_attention", "sliding_attention"
"""The values in `layer_types` of config.json: of layers that attend to all tokens, and to a window of them."""


def layers_by_depth(model: PreTrainedModel) -> list[nn.Module]:
    """Return the modules whose outputs are the hidden states at depth 1, 2, ..., the number of layers.

    ALBERT runs few modules repeatedly, and each is listed once for every run: a hook on it fires at each of these
    depths, in ascending order within one forward pass. `Family.query`, `key` and `value` are paths in such a module.

    Args:
        model: with or without a head.
    """
    config, trunk = model.config, model.base_model
    family = family_of(config)
    stack: Any = trunk.get_submodule(family.layers)
    if not family.shares_layers:
        return list(stack)
    runs = config.num_hidden_layers
    groups = (stack[int(run / (runs / len(stack)))] for run in range(runs))
    return [layer for group in groups for layer in group.albert_layers]


def encoder_layers(model: Any) -> nn.ModuleList:
    """Return the transformer layers, the lowest first."""
    layers = model.base_model.get_submodule(family_of(model.config).layers)
    if not isinstance(layers, nn.ModuleList):
        raise TypeError(f"{type(model).__name__} has its layers in a {type(layers).__name__}, not in a ModuleList")
    return layers


def state_modules(model: PreTrainedModel) -> list[nn.Module]:
    """Return the modules whose outputs are the hidden states of a post-norm model at depth 1, 2, ...

    They are the layers, but for the convolution that DeBERTa-v2-xlarge has after its first layer.
    """
    layers = layers_by_depth(model)
    parent = model.base_model.get_submodule(family_of(model.config).layers.rpartition(".")[0])
    convolution = getattr(parent, "conv", None)
    return layers if convolution is None else [convolution, *layers[1:]]


def normed_states(model: PreTrainedModel) -> list[nn.Module]:
    """Return the norms that read the residual stream of a pre-norm model at depth 0, 1, ..., the number of layers.

    A layer's output grows with depth until a norm reads it: that of the next layer, or the last one of the encoder.
    """
    family, trunk = family_of(model.config), model.base_model
    norms = [layer.get_submodule(family.input_norm) for layer in layers_by_depth(model)]
    return [*norms, trunk.get_submodule(family.final_norm)]


def attention_window(config: PreTrainedConfig, depth: int) -> int | None:
    """Return how many tokens on each side the layer attends to whose output is the state at a depth; None for all."""
    if family_of(config).in_windows:
        return layer_windows(config)[depth - 1] // 2
    types = getattr(config, "layer_types", None)
    return int(config.sliding_window) if types and types[depth - 1] == LOCAL else None


def query_group(config: PreTrainedConfig) -> int:
    """Return how many query heads share one key and one value head: 1 unless the family groups them."""
    family = family_of(config)
    shared = getattr(config, family.kv_heads_key) if family.kv_heads_key else None
    return int(getattr(config, family.heads_key)) // int(shared) if shared else 1


def set_sizes(config: PreTrainedConfig, **sizes: int | None) -> None:
    """Set `layers`, `hidden`, `heads` and `ffn` of a config, and the sizes that follow from them; None keeps one.

    Query heads stay in groups of the same size; where the new number of heads is no multiple of it, they are ungrouped.
    """
    family, group = family_of(config), query_group(config)
    for key, size in family.shape_changes(**sizes).items():
        setattr(config, key, size)
    heads = int(getattr(config, family.heads_key))
    if family.kv_heads_key:
        setattr(config, family.kv_heads_key, heads // group if heads % group == 0 else heads)
    if getattr(config, "head_dim", None):
        config.head_dim = getattr(config, family.hidden_key) // heads


def attention_sizes(config: PreTrainedConfig) -> tuple[int, int]:
    """Return the number of heads and the size of each: queries, keys and values are (batch, length, heads x size).

    MobileBERT computes attention in its bottleneck, which is narrower than its hidden size.
    """
    heads = int(config.num_attention_heads)
    return heads, int(getattr(config, "true_hidden_size", config.hidden_size)) // heads
