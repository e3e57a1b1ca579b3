"""Reading what is inside a model while it runs: hidden states, queries, keys and values of some layers.

Attention maps are computed from queries and keys by the losses that read them, so the model itself keeps its fused
attention (SDPA) in every layer.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from biosqueeze.models.families import family_of
from biosqueeze.models.layers import attention_sizes, layers_by_depth

PARTS = ("hidden", "query", "key", "value")

# By depth: 0 is what enters the first layer, 1 and up are the layers.
States = dict[int, dict[str, Tensor]]


class HiddenStateHooks:
    """Forward hooks on some layers of a model; they read only within `open`."""

    def __init__(self, model: PreTrainedModel, wanted: Mapping[int, frozenset[str]]) -> None:
        """Set the hooks.

        Args:
            model: with or without a head.
            wanted: parts by depth; depth 0 has `hidden` alone, what enters the first layer.
        """
        family = family_of(model.config)
        self._heads, _ = attention_sizes(model.config)
        self._wanted = wanted
        self._states: States | None = None
        self._calls: Counter[tuple[nn.Module, str]] = Counter()
        layers = layers_by_depth(model)
        if 0 in wanted:
            layers[0].register_forward_pre_hook(self._enter, with_kwargs=True)
        for layer in dict.fromkeys(layers):
            depths = [depth for depth, other in enumerate(layers, 1) if other is layer]  # ALBERT runs one many times
            for part in frozenset().union(*(wanted.get(depth, frozenset()) for depth in depths)):
                module = layer if part == "hidden" else layer.get_submodule(getattr(family, part))
                module.register_forward_hook(partial(self._leave, part, depths))

    @contextmanager
    def open(self) -> Iterator[States]:
        """Read while the model runs once; the states are there when it has.

        Yields:
            by depth and part: `hidden` (batch, length, hidden), others (batch, heads, length, head size).
        """
        self._states = {}
        self._calls.clear()
        try:
            yield self._states
        finally:
            self._states = None

    def _enter(self, _layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._states is not None and 0 not in self._states:
            self._states[0] = {"hidden": args[0] if args else kwargs["hidden_states"]}

    def _leave(self, part: str, depths: Sequence[int], module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        if self._states is None:
            return
        depth = depths[self._calls[module, part]]
        self._calls[module, part] += 1
        if part in self._wanted.get(depth, ()):
            tensor = output[0] if isinstance(output, tuple) else output
            self._states.setdefault(depth, {})[part] = tensor if part == "hidden" else self._split(tensor)

    def _split(self, projected: Tensor) -> Tensor:
        """(batch, length, heads x head size) -> (batch, heads, length, head size)."""
        return projected.view(*projected.shape[:-1], self._heads, -1).transpose(1, 2)
