"""Factors of one on the activations of every unit, whose gradients say how the loss changes without the unit.

A neuron is a column of the FFN's output layer and a head some columns of the attention's output layer, in every family:
the factor multiplies the input of that layer.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from biosqueeze.data.feature_keys import INPUT_IDS
from biosqueeze.importance.calibration import Calibration, example_count
from biosqueeze.models.families import family_of
from biosqueeze.models.layers import encoder_layers, query_group

BATCH_AXES = {"layers": 1, "hidden": 0, "heads": 1, "neurons": 1}
"""Which axis of the gates of a kind is that of the sequences."""


@dataclass(frozen=True)
class Gates:
    """Factors by sequence; all are one at first."""

    layers: Tensor
    """(layers, batch): 0 replaces a layer's output by its input."""
    hidden: Tensor
    """(batch, hidden): of the residual stream before and after every layer."""
    heads: Tensor | None
    """(layers, batch, heads), see `UnitScores`."""
    neurons: Tensor | None
    """(layers, batch, neurons)."""

    def tensors(self) -> dict[str, Tensor]:
        """Return the gates that the family has, by kind of unit."""
        return {kind: gate for kind, gate in vars(self).items() if gate is not None}


@contextmanager
def gated(model: PreTrainedModel, batch: int, *, gradients: bool = False) -> Iterator[Gates]:
    """Multiply the activations of every unit by gates inside the block.

    Args:
        model: whose layers do not share their weights.
        batch: number of sequences.
        gradients: whether the gates require gradients.
    """
    layers, family = encoder_layers(model), family_of(model.config)
    heads = neurons = None

    def ones(*shape: int) -> Tensor:
        return torch.ones(shape, requires_grad=gradients)

    if family.supports_narrowing:
        units = int(getattr(model.config, family.heads_key)) // query_group(model.config)
        heads = ones(len(layers), batch, units)
        neurons = ones(len(layers), batch, int(getattr(model.config, family.ffn_key)))
    gates = Gates(ones(len(layers), batch), ones(batch, int(getattr(model.config, family.hidden_key))), heads, neurons)
    handles = []
    for index, layer in enumerate(layers):
        handles += _gate_layer(layer, gates.layers[index], gates.hidden)
        if heads is not None and neurons is not None:
            handles.append(_gate_inputs(layer.get_submodule(family.attention_output), heads[index]))
            handles.append(_gate_inputs(layer.get_submodule(family.ffn_output), neurons[index]))
    handles.append(layers[-1].register_forward_hook(lambda _module, _args, output: _scaled(output, gates.hidden)))
    try:
        yield gates
    finally:
        for handle in handles:
            handle.remove()


def loss_gradients(model: PreTrainedModel, calibration: Calibration) -> Iterator[dict[str, Tensor]]:
    """Yield for every batch the gradient of each example's loss by its gates: (layers, examples, units), float64.

    Those of `hidden` are (examples, hidden), and those of `layers` (layers, examples). The gates of two texts that are
    encoded separately are one: their gradients are added.
    """
    requirements = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    model.requires_grad_(False)
    try:
        for batch in calibration.batches:
            with gated(model, len(batch[INPUT_IDS]), gradients=True) as gates:
                tensors = gates.tensors()
                gradients = torch.autograd.grad(calibration.loss(model, batch), list(tensors.values()))
            examples = example_count(batch)
            found = zip(tensors, gradients, strict=True)
            yield {kind: _of_examples(gradient.double(), BATCH_AXES[kind], examples) for kind, gradient in found}
    finally:
        for parameter, required in requirements:
            parameter.requires_grad_(required)


def _of_examples(gradient: Tensor, axis: int, examples: int) -> Tensor:
    """Add up the gradients of an example's rows; the first rows of all examples come before the second ones."""
    rows: Tensor = gradient.unflatten(axis, (-1, examples))
    return rows.sum(axis)


def _gate_inputs(module: nn.Module, gate: Tensor) -> Any:
    """Multiply the inputs (batch, length, units x size) of a module by a gate (batch, units)."""

    def hook(_module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        units = args[0].unflatten(-1, (gate.shape[-1], -1))  # (batch, length, units, size)
        return ((units * gate[:, None, :, None]).flatten(-2), *args[1:])

    return module.register_forward_pre_hook(hook)


def _gate_layer(layer: nn.Module, gate: Tensor, hidden: Tensor) -> list[Any]:
    """Multiply what a layer adds to its input by a gate (batch,), and its input by another (batch, hidden)."""
    entered: list[Tensor] = []

    def enter(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        states = (args[0] if args else kwargs["hidden_states"]) * hidden[:, None, :]
        entered[:] = [states]
        return ((states, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": states})

    def leave(_module: nn.Module, _args: Any, output: Any) -> Any:
        states = output[0] if isinstance(output, tuple) else output
        blended = torch.lerp(entered.pop(), states, gate[:, None, None])
        return (blended, *output[1:]) if isinstance(output, tuple) else blended

    return [layer.register_forward_pre_hook(enter, with_kwargs=True), layer.register_forward_hook(leave)]


def _scaled(output: Any, gate: Tensor) -> Any:
    if isinstance(output, tuple):
        return (output[0] * gate[:, None, :], *output[1:])
    return output * gate[:, None, :]
