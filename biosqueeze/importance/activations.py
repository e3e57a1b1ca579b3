"""Activations of every layer at the real tokens of calibration text."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from biosqueeze.data.feature_keys import ATTENTION_MASK
from biosqueeze.importance.calibration import Calibration
from biosqueeze.models.cuts.token_states import at_tokens
from biosqueeze.models.families import family_of
from biosqueeze.models.layers import encoder_layers, query_group


@dataclass
class LayerActivations:
    """What one layer computes for the real tokens of a batch, float64."""

    input: Tensor = field(default_factory=lambda: torch.empty(0))
    """(tokens, hidden): the residual stream before the layer."""
    output: Tensor = field(default_factory=lambda: torch.empty(0))
    """(tokens, hidden): the residual stream after it."""
    attention_input: Tensor | None = None
    """(tokens, hidden): what queries, keys and values read; in pre-norm layers the normalised stream."""
    ffn_input: Tensor | None = None
    """(tokens, hidden): what the FFN reads."""
    heads: Tensor | None = None
    """(tokens, heads, size): what the attention's output layer reads of each head, see `UnitScores`."""
    neurons: Tensor | None = None
    """(tokens, neurons): what the FFN's output layer reads."""


@torch.no_grad()
def layer_activations(model: PreTrainedModel, calibration: Calibration) -> Iterator[list[LayerActivations]]:
    """Yield the activations of all layers, batch after batch."""
    family, layers = family_of(model.config), encoder_layers(model)
    units = int(getattr(model.config, family.heads_key)) // query_group(model.config)
    for batch in calibration.batches:
        found = [LayerActivations() for _ in layers]
        real = batch[ATTENTION_MASK].bool()
        handles = []
        for layer, values in zip(layers, found, strict=True):
            handles += _watch_layer(layer, values, real)
            if family.supports_narrowing:
                read = {"attention_input": family.query, "heads": family.attention_output}
                read |= {"ffn_input": family.ffn_input, "neurons": family.ffn_output}
                for name, path in read.items():
                    length_first = family.in_windows and name == "attention_input"
                    keeper = _keeper(values, name, real, units if name == "heads" else 0, length_first=length_first)
                    handles.append(layer.get_submodule(path).register_forward_pre_hook(keeper))
        try:
            calibration.run(model, batch)
        finally:
            for handle in handles:
                handle.remove()
        yield found


def _watch_layer(layer: nn.Module, values: LayerActivations, real: Tensor) -> list[Any]:
    def enter(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        values.input = at_tokens(args[0] if args else kwargs["hidden_states"], real)

    def leave(_module: nn.Module, _args: Any, output: Any) -> None:
        values.output = at_tokens(output[0] if isinstance(output, tuple) else output, real)

    return [layer.register_forward_pre_hook(enter, with_kwargs=True), layer.register_forward_hook(leave)]


def _keeper(values: LayerActivations, name: str, real: Tensor, units: int, *, length_first: bool) -> Any:
    def hook(_module: nn.Module, args: tuple[Any, ...]) -> None:
        if getattr(values, name) is not None:  # DeBERTa's projections read relative positions too, after the tokens
            return
        states = at_tokens(args[0].transpose(0, 1) if length_first else args[0], real)
        setattr(values, name, states.view(len(states), units, -1) if units else states)

    return hook
