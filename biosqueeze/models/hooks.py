"""Forward hooks that capture hidden states, queries, keys and values of some layers.

Losses over attention maps compute them from queries and keys, so the model keeps its fused attention (SDPA) in every
layer.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from biosqueeze.models.attention_bias import hook_bias
from biosqueeze.models.families import family_of
from biosqueeze.models.layers import attention_sizes, layers_by_depth, normed_states, query_group, state_modules

PARTS = ("hidden", "query", "key", "value", "bias")

# By depth and part: depth 0 is the input of the first layer, depth n the output of the n-th.
States = dict[int, dict[str, Tensor]]
_Rotation = tuple[Tensor, Tensor]  # cosines and sines, see `_rotated`


class HiddenStateHooks:
    """Forward hooks on some layers of a model; they capture only inside a `capture` block."""

    def __init__(self, model: PreTrainedModel, parts: Mapping[int, frozenset[str]]) -> None:
        """Register the hooks.

        Args:
            model: with or without a head.
            parts: names of `PARTS` by depth; depth 0, the input of the first layer, has `hidden` only. `bias` is
                captured in families with relative positions, and is no part of the states of others.
        """
        self._family = family = family_of(model.config)
        _, self._size = attention_sizes(model.config)
        self._group = query_group(model.config)
        self._parts = parts
        self._states: States | None = None
        self._calls: Counter[tuple[nn.Module, str]] = Counter()
        self._rotation: _Rotation | None = None  # of the layer that runs
        self._rotations: dict[tuple[int, str], _Rotation] = {}  # of the captured queries and keys, by depth and part
        self._length: int | None = None  # of the input, if hidden states may be longer
        if family.in_windows:
            model.base_model.register_forward_pre_hook(self._keep_length, with_kwargs=True)
        layers = layers_by_depth(model)
        self._depth = len(layers)
        states, norms = state_modules(model), normed_states(model) if family.input_norm else []
        if 0 in parts:
            self._hook_input(norms[0] if norms else layers[0])
        for layer in dict.fromkeys(layers):
            depths = [
                depth for depth, candidate in enumerate(layers, 1) if candidate is layer
            ]  # ALBERT runs one layer at many depths
            wanted = frozenset().union(*(parts.get(depth, frozenset()) for depth in depths))
            if "bias" in wanted:
                hook_bias(layer, family, partial(self._capture_output, "bias", depths))
            for part in wanted - {"bias"}:
                state = norms[depths[0]] if norms else states[depths[0] - 1]
                module = state if part == "hidden" else layer.get_submodule(getattr(family, part))
                module.register_forward_hook(partial(self._capture_output, part, depths))
            if family.rotary and wanted - {"hidden"}:
                layer.get_submodule(family.attention).register_forward_pre_hook(self._keep_rotation, with_kwargs=True)

    def _hook_input(self, module: nn.Module) -> None:
        """Capture the state at depth 0: the first layer's input, or that of a pre-norm layer after its norm."""
        if self._family.input_norm:
            module.register_forward_hook(partial(self._capture_output, "hidden", [0]))
        else:
            module.register_forward_pre_hook(self._capture_input, with_kwargs=True)

    @property
    def captures_last_states(self) -> bool:
        """Whether the hidden states at the last depth are captured."""
        return "hidden" in self._parts.get(self._depth, ())

    @contextmanager
    def capture(self) -> Iterator[States]:
        """Capture one forward pass of the model, which must run inside the block.

        Yields:
            a mapping that the forward pass fills, by depth and part: `hidden` (batch, length, hidden), the others
            (batch, heads, length, head size), at the end of the block with queries and keys after the rotation by
            their positions; `bias` is (batch, heads, query, key).
        """
        states = self._states = {}
        self._calls.clear()
        self._rotations.clear()
        try:
            yield states
        finally:
            self._states = None
        # Out here: gradient checkpointing computes a layer again without capturing it, and would miss the tensors that
        # these operations save for the backward pass.
        for depth, parts in states.items():
            parts |= {part: self._as_attended(depth, part, state) for part, state in parts.items()}

    def _capture_input(self, _layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._states is not None and 0 not in self._states:
            self._states[0] = {"hidden": self._unpadded(args[0] if args else kwargs["hidden_states"])}

    def _capture_output(
        self, part: str, depths: Sequence[int], module: nn.Module, _args: tuple[Any, ...], output: Any
    ) -> None:
        if self._states is None:
            return
        call = self._calls[module, part]
        self._calls[module, part] += 1
        if call >= len(depths):  # DeBERTa projects the tokens first, and then its relative embeddings
            return
        depth = depths[call]
        if part in self._parts.get(depth, ()):
            tensor = self._unpadded(output[0] if isinstance(output, tuple) else output, part)
            whole = part in ("hidden", "bias")
            self._states.setdefault(depth, {})[part] = tensor if whole else self._split_heads(part, tensor)
            if self._rotation is not None and part in ("query", "key"):
                self._rotations[depth, part] = self._rotation

    def _keep_length(self, _trunk: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._length = (args[0] if args else kwargs["input_ids"]).shape[1]

    def _unpadded(self, state: Tensor, part: str = "hidden") -> Tensor:
        """Cut a state of Longformer to the input's length; it scales queries (length, batch, size) in place."""
        if self._length is None:
            return state
        return (state if part == "hidden" else state.transpose(0, 1).clone())[:, : self._length]

    def _keep_rotation(self, _attention: nn.Module, _args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._rotation = kwargs["position_embeddings"] if self._states is not None else None

    def _split_heads(self, part: str, projected: Tensor) -> Tensor:
        """Reshape (batch, length, heads x head size) to (batch, heads, length, head size)."""
        if self._family.fuses_projections:
            projected = projected.chunk(3, dim=-1)[PARTS.index(part) - 1]
        return projected.view(*projected.shape[:-1], -1, self._size).transpose(1, 2)

    def _as_attended(self, depth: int, part: str, state: Tensor) -> Tensor:
        """Rotate queries and keys by their positions, and repeat the shared heads of keys and values."""
        if (depth, part) in self._rotations:
            state = _rotated(state, *self._rotations[depth, part])
        is_shared = self._group > 1 and part in ("key", "value")
        return state.repeat_interleave(self._group, dim=1) if is_shared else state


def _rotated(split: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotate queries or keys by their positions (Su et al. 2021, RoFormer, equation 34): dimension i with i + size/2.

    Args:
        split: (batch, heads, length, head size).
        cosines: (batch, length, head size), like `sines`.
        sines: see cosines.
    """
    first, second = split.float().chunk(2, dim=-1)
    turned = torch.cat([-second, first], dim=-1)
    return (split.float() * cosines.unsqueeze(1) + turned * sines.unsqueeze(1)).to(split.dtype)
