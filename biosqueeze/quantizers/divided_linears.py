"""Divide the outlier channels of the inputs of a model's linear layers before it is traced, see `outlier_channels`."""

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
from biosqueeze.quantizers.outlier_channels import Maxima, outlier_factors

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
    """Put a `DividedLinear` in the place of each linear layer that has outliers in its input.

    Inputs that several layers read, such as those of query, key and value, stay as they are: each would be divided and
    quantized for itself.

    Args:
        model: changed in place.
        batches: to find outliers on.
        left_out: names of layers that stay as they are.

    Returns:
        number of inputs that are divided.
    """
    found = {name: outlier_factors(maxima) for name, maxima in _maxima(model, batches).items() if name not in left_out}
    factors = {name: torch.from_numpy(values) for name, values in found.items() if values is not None}
    for name, values in factors.items():
        model.set_submodule(name, DividedLinear(model.get_submodule(name), values))  # type: ignore[arg-type]
    return len(factors)


@torch.no_grad()
def _maxima(model: nn.Module, batches: Sequence["TokenBatch"]) -> dict[str, Maxima]:
    """Return the maxima of the inputs that one linear layer alone reads, by its name."""
    names, largest = input_names(model), dict[str, Maxima]()  # type: ignore[arg-type] # a HeadedEncoder has them too
    shared = set[str]()
    with track("look for outlier channels", len(batches)) as progress:
        for batch in batches:
            filled = with_token_types(batch)
            with _inputs_of_linears(model) as inputs:
                model(**{name: torch.from_numpy(filled[name]) for name in names})
            readers = Counter(id(states) for _, states in inputs)
            shared |= {name for name, states in inputs if readers[id(states)] > 1}
            for name, states in inputs:
                maxima = states.flatten(0, -2).abs().amax(0).numpy()
                largest[name] = np.maximum(largest[name], maxima) if name in largest else maxima
            progress.advance()
    return {name: maxima for name, maxima in largest.items() if name not in shared}


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
