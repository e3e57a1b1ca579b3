"""Prune the width of layers with gates, fused projections and rotary positions by the rows and columns of each unit.

Which tensors are coupled follows from the family's names alone: a neuron is its rows in the FFN's input and gate and
its column in the FFN's output, a head its rows in queries, keys and values and its columns in the attention's output.
Query heads that share a key and a value head are one unit.
The importance is the squared L2 norm of all weights of a unit, as in `models.cuts.width`; here biases count too, and,
for hidden dimensions, the embeddings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from biosqueeze.models.cuts.head_rotation import present
from biosqueeze.models.cuts.pruning import WidthPruning
from biosqueeze.models.layers import encoder_layers, query_group
from biosqueeze.models.loading.load import skeleton


@dataclass(frozen=True)
class _Units:
    """Where the units of a layer lie in one linear layer: unit u at `start + u * size` for each start."""

    path: str
    size: int = 1
    starts: tuple[int, ...] = (0,)
    axis: int = 0  # 0: rows of the weight and the bias, 1: columns

    def indices(self, units: Sequence[int]) -> Tensor:
        """Return the rows or columns of each unit: (units, starts x size)."""
        first = torch.tensor(units).view(-1, 1, 1) * self.size
        offsets = torch.tensor(self.starts).view(-1, 1) + torch.arange(self.size)
        return (first + offsets).flatten(1)

    def kept(self, units: Sequence[int]) -> Tensor:
        """Return the rows or columns of some units, in the order of the weight."""
        return self.indices(units).flatten().sort().values


class SlicedPruning(WidthPruning):
    """Prune by slices of each weight; the size of the heads stays, because rotary positions depend on it."""

    def neuron_magnitudes(self) -> Tensor:
        """Sum the squares of the weights of the neurons of every layer."""
        return self._magnitudes(self._neurons, self._ffn_places())

    def head_magnitudes(self) -> Tensor:
        """Sum the squares of the weights of the heads of every layer."""
        return self._magnitudes(self._head_units, self._head_places(self._head_size))

    def cut_ffn(self, keep: int) -> None:
        """Keep this number of neurons in every layer."""
        self._cut_layers(self._removed_neurons(keep), self._neurons, self._ffn_places())
        self._compare(f"keeping {keep} ffn neurons")

    def cut_heads(self, keep: int) -> None:
        """Keep this number of heads in every layer, and the hidden size."""
        removed = self._removed_heads(keep // query_group(self.pruned.config))
        self._cut_layers(removed, self._head_units, self._head_places(self._head_size))
        self._compare(f"keeping {keep} heads")

    @property
    def _neurons(self) -> int:
        return int(getattr(self.pruned.config, self.family.ffn_key))

    @property
    def _head_units(self) -> int:
        return int(getattr(self.pruned.config, self.family.heads_key)) // query_group(self.pruned.config)

    @property
    def _head_size(self) -> int:
        attention = encoder_layers(self.pruned)[0].get_submodule(self.family.attention)
        return int(getattr(attention, self.family.head_size_attribute))

    def _ffn_places(self) -> tuple[_Units, ...]:
        """Return where the neurons lie in a layer, the columns of the FFN's output last."""
        family = self.family
        gate = (_Units(family.ffn_gate),) if family.ffn_gate and not family.fuses_gate else ()
        starts = (0, self._neurons) if family.fuses_gate else (0,)
        return (_Units(family.ffn_input, starts=starts), *gate, _Units(family.ffn_output, axis=1))

    def _head_places(self, size: int) -> tuple[_Units, ...]:
        """Return where the heads of a size lie in a layer, the columns of the attention's output last."""
        family, config = self.family, self.pruned.config
        heads, group = int(getattr(config, family.heads_key)), query_group(config)
        rows: tuple[_Units, ...] = (_Units(family.query, size, (0, heads * size, 2 * heads * size)),)
        if not family.fuses_projections:
            shared = (family.key, family.value, *family.extra_projections)
            rows = (_Units(family.query, group * size), *(_Units(path, size) for path in shared))
        return (*rows, _Units(family.attention_output, group * size, axis=1))

    def _narrow_all_heads(self, size: int, keep: int) -> None:
        """Raise: see `width.choose_widths`."""
        raise ValueError(f"the heads of a {self.family.name} cannot be narrowed from {size} to {keep}")

    def cut_hidden(self, config: PreTrainedConfig, architecture: str) -> None:
        """Narrow the residual stream and the head to the same dimensions of the hidden size.

        Every axis whose size differs from that of the narrower model is one of the hidden size.
        """
        target = skeleton(config, architecture).state_dict()
        axes = {
            name: [axis for axis, size in enumerate(parameter.shape) if size != target[name].shape[axis]]
            for name, parameter in self.pruned.named_parameters()
        }
        self._removed_hidden(lambda: self._hidden_magnitudes(axes), config.hidden_size)
        kept = torch.tensor(self.kept.hidden)
        for name, named_axes in axes.items():
            owner, _, attribute = name.rpartition(".")
            for axis in named_axes:
                _keep(self.pruned.get_submodule(owner), attribute, axis, kept)

    def _hidden_magnitudes(self, axes: Mapping[str, Sequence[int]]) -> Tensor:
        """Sum the squares of all weights of each hidden dimension, from the axes of each parameter: (hidden,)."""
        scores = torch.zeros(self.pruned.config.hidden_size)
        for name, parameter in self.pruned.named_parameters():
            for axis in axes[name]:
                scores += parameter.detach().square().sum([other for other in range(parameter.dim()) if other != axis])
        return scores

    def _magnitudes(self, units: int, places: Sequence[_Units]) -> Tensor:
        """Sum the squares of all weights of each unit: (layers, units)."""
        layers = encoder_layers(self.pruned)
        sums = (sum(_scores(layer.get_submodule(p.path), p, units) for p in places) for layer in layers)
        return torch.stack([torch.as_tensor(each) for each in sums])

    def _cut_layers(self, removed: Sequence[Sequence[int]], units: int, places: Sequence[_Units]) -> None:
        """Remove units from every layer; the last place is that of the columns that read them."""
        columns = places[-1]
        for index, (layer, gone) in enumerate(zip(encoder_layers(self.pruned), removed, strict=True)):
            kept = [unit for unit in range(units) if unit not in set(gone)]
            for place in places:
                _keep_units(layer.get_submodule(place.path), place, kept)
            self._mask_channels(index, columns.path, columns.kept(gone).tolist())


class RelativePruning(SlicedPruning):
    """Prune DeBERTa: its projections of relative positions have the rows of the same heads as queries and keys.

    Its relative embeddings have the hidden size of the tokens and are cut to the same dimensions.
    """

    def _narrow_all_heads(self, size: int, keep: int) -> None:
        for layer in encoder_layers(self.pruned):
            self._narrow_heads(layer, size, keep)

    def _narrow_heads(self, layer: Any, size: int, keep: int) -> None:
        attention, family = layer.get_submodule(self.family.attention), self.family
        for place in self._head_places(1):
            module = layer.get_submodule(place.path)
            kept = [i for i in range(module.weight.shape[place.axis]) if i % size < keep]
            _keep_units(module, place, kept)
        for path in present(layer, (family.query, family.position_query)):
            module = layer.get_submodule(path)
            with torch.no_grad():  # attention divides by the root of the head size, which is smaller now
                for tensor in (module.weight, module.bias):
                    tensor *= (keep / size) ** 0.5
        attention.attention_head_size = keep
        attention.all_head_size = layer.get_submodule(family.query).out_features

    def _head_places(self, size: int) -> tuple[_Units, ...]:
        *rows, columns = super()._head_places(size)
        layer, family = encoder_layers(self.pruned)[0], self.family
        others = present(layer, (family.position_key, family.position_query))
        return (*rows, *(_Units(path, size) for path in others), columns)

    def _cut_layers(self, removed: Sequence[Sequence[int]], units: int, places: Sequence[_Units]) -> None:
        super()._cut_layers(removed, units, places)
        for layer in encoder_layers(self.pruned):
            attention: Any = layer.get_submodule(self.family.attention)
            attention.all_head_size = layer.get_submodule(self.family.query).out_features
            attention.num_attention_heads = attention.all_head_size // attention.attention_head_size


def _scores(module: Any, place: _Units, units: int) -> Tensor:
    """Sum the squares of the weights of each unit: (units,)."""
    with torch.no_grad():
        along = module.weight.square().sum(1 - place.axis)
        if place.axis == 0 and module.bias is not None:
            along = along + module.bias.square()
        scores: Tensor = along[place.indices(range(units))].sum(1)
    return scores


def _keep_units(module: Any, place: _Units, kept: Sequence[int]) -> None:
    """Keep some units of a linear layer."""
    _keep(module, "weight", place.axis, place.kept(kept))
    if place.axis == 0 and module.bias is not None:
        _keep(module, "bias", 0, place.kept(kept))


def _keep(module: nn.Module, name: str, axis: int, kept: Tensor) -> None:
    """Keep some rows or columns of a parameter."""
    parameter: Any = getattr(module, name)
    setattr(module, name, nn.Parameter(parameter.detach().index_select(axis, kept).clone()))
    if isinstance(module, nn.LayerNorm):
        module.normalized_shape = (len(kept),)
    if isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape
