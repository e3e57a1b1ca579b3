"""Divide the inputs of a model's linear layers by channel before it is traced, see `divisions`."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from biosqueeze.backends import with_token_types
from biosqueeze.backends.torch import input_names
from biosqueeze.progress import track
from biosqueeze.quantizers.divisions import ByChannel, best_division
from biosqueeze.quantizers.input_statistics import InputStatistics, joined

if TYPE_CHECKING:
    from biosqueeze.quantizers.calibration import TokenBatch


class DividedLinear(nn.Module):
    """A linear layer with the factors of its input in its weight."""

    inverse: Tensor

    def __init__(self, linear: nn.Linear, factors: Tensor) -> None:
        """Take the bias of a layer, and its weight times the factors (inputs,); the layer stays as it is."""
        super().__init__()
        self.weight, self.bias = nn.Parameter(linear.weight.detach() * factors), linear.bias
        self.register_buffer("inverse", 1 / factors)

    def forward(self, states: Tensor) -> Tensor:
        """Compute the same as the layer."""
        return functional.linear(states * self.inverse, self.weight, self.bias)


def divide_linears(model: nn.Module, batches: Sequence["TokenBatch"], left_out: Collection[str]) -> int:
    """Put a `DividedLinear` in the place of each linear layer whose input is better divided by channel.

    Inputs that several layers read, such as those of query, key and value, stay as they are: each would be divided and
    quantized for itself.

    Args:
        model: changed in place.
        batches: to measure the inputs on.
        left_out: names of layers that stay as they are.

    Returns:
        number of inputs that are divided.
    """
    divided = 0
    for name, statistics in _statistics(model, batches).items():
        if name in left_out:
            continue
        linear = model.get_submodule(name)
        assert isinstance(linear, nn.Linear)
        division = best_division(statistics, linear.weight.detach().T.numpy(), fixed=True)
        if isinstance(division, ByChannel):
            model.set_submodule(name, DividedLinear(linear, torch.from_numpy(division.factors)))
            divided += 1
    return divided


@torch.no_grad()
def _statistics(model: nn.Module, batches: Sequence["TokenBatch"]) -> dict[str, InputStatistics]:
    """Return the statistics of the inputs that one linear layer alone reads, by its name, as of one batch."""
    names = input_names(model)  # type: ignore[arg-type] # a HeadedEncoder has them too
    found, shared = dict[str, list[InputStatistics]](), set[str]()
    with track("measure the inputs of the layers", len(batches)) as progress:
        for batch in batches:
            filled = with_token_types(batch)
            with _inputs_of_linears(model) as inputs:
                model(**{name: torch.from_numpy(filled[name]) for name in names})
            readers = Counter(id(states) for _, states in inputs)
            shared |= {name for name, states in inputs if readers[id(states)] > 1}
            for name, states in inputs:
                found.setdefault(name, []).append(_of_states(states))
            progress.advance()
    return {name: _as_one_batch(several) for name, several in found.items() if name not in shared}


def _of_states(states: Tensor) -> InputStatistics:
    rows = states.flatten(0, -2).numpy()
    return InputStatistics(rows.max(0, keepdims=True), rows.min(0, keepdims=True), np.square(rows).mean(0))


def _as_one_batch(several: Sequence[InputStatistics]) -> InputStatistics:
    """Return statistics with the one range that all batches will have."""
    every = joined(several)
    return InputStatistics(every.highest.max(0, keepdims=True), every.lowest.min(0, keepdims=True), every.mean_square)


@contextmanager
def _inputs_of_linears(model: nn.Module) -> Iterator[list[tuple[str, Tensor]]]:
    """Collect the inputs of all calls of linear layers inside the block, with the layers' names."""
    inputs = list[tuple[str, Tensor]]()  # kept to the end: Python may give the id of a deleted tensor to another

    def keep(name: str, _module: nn.Module, given: tuple[Any, ...]) -> None:
        inputs.append((name, given[0]))

    linears = ((name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear))
    handles = [module.register_forward_pre_hook(partial(keep, name)) for name, module in linears]
    try:
        yield inputs
    finally:
        for handle in handles:
            handle.remove()
