"""What all ways to prune a model's width share: a copy that is cut, and the original with the same channels masked."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from biosqueeze.models.cuts.head_rotation import rotate_heads, zero_dimensions
from biosqueeze.models.cuts.unit_scores import KeptUnits, UnitScores, shared_by_layers
from biosqueeze.models.families import family_of
from biosqueeze.models.layers import encoder_layers
from biosqueeze.models.longformer import use_dense_attention
from biosqueeze.models.verify import check_same_outputs, float_outputs, padded_batch


class WidthPruning(ABC):
    """A copy of a model that is pruned step by step, and the original with the removed channels masked by hooks."""

    def __init__(self, model: PreTrainedModel, scores: UnitScores | None = None) -> None:
        """Copy a model.

        Args:
            model: is not changed.
            scores: by which units are chosen; by their magnitude where there are none.
        """
        self.original = model
        self.scores = scores or UnitScores()
        self.kept = KeptUnits()
        self.family = family_of(model.config)
        self.batch = padded_batch(model)
        self.pruned: Any = _untied_copy(model)
        self.differences: dict[str, float] = {}
        self.masks: dict[nn.Module, Tensor] = {}

    @abstractmethod
    def neuron_magnitudes(self) -> Tensor:
        """Return the squared L2 norm of the weights of every neuron: (layers, neurons)."""

    @abstractmethod
    def head_magnitudes(self) -> Tensor:
        """Return the squared L2 norm of the weights of every head: (layers, heads), see `UnitScores`."""

    @abstractmethod
    def cut_ffn(self, keep: int) -> None:
        """Keep this number of neurons in every layer."""

    @abstractmethod
    def cut_heads(self, keep: int) -> None:
        """Keep this number of heads in every layer, and the hidden size."""

    def cut_head_size(self, keep: int) -> None:
        """Keep this number of dimensions of every head, after a rotation that sorts them."""
        layers: Any = encoder_layers(self.pruned)
        size = int(layers[0].get_submodule(self.family.attention).attention_head_size)
        for layer in layers:
            rotate_heads(layer, self.family, size)
        self._compare("rotating the heads")
        reference = copy.deepcopy(self.pruned)
        for layer in encoder_layers(reference):
            zero_dimensions(layer, self.family, size, keep)
        self._narrow_all_heads(size, keep)
        pruned, expected = float_outputs(self.pruned, self.batch), float_outputs(reference, self.batch)
        step = f"keeping {keep} dimensions of each head"
        self.differences[step] = check_same_outputs(step, pruned, expected)

    @abstractmethod
    def _narrow_all_heads(self, size: int, keep: int) -> None:
        """Keep the first dimensions of every head, of `size` that it has."""

    @abstractmethod
    def cut_hidden(self, config: PreTrainedConfig, architecture: str) -> None:
        """Narrow the residual stream to the hidden size of a config, and the head with it."""

    def _removed_neurons(self, keep: int) -> list[list[int]]:
        """Choose the neurons that each layer loses, and record the others."""
        scores = self.neuron_magnitudes() if self.scores.neurons is None else self.scores.neurons
        removed = [least_important(each, keep) for each in scores]
        self.kept.neurons = [_others(each, scores.shape[1]) for each in removed]
        return removed

    def _removed_heads(self, keep: int) -> list[list[int]]:
        """Choose the heads that each layer loses, the same ones if the layers share a bias of each head."""
        scores = self.head_magnitudes() if self.scores.heads is None else self.scores.heads
        if self.family.shared_bias:
            scores = shared_by_layers(scores)
        removed = [least_important(each, keep) for each in scores]
        self.kept.heads = [_others(each, scores.shape[1]) for each in removed]
        return removed

    def _removed_hidden(self, magnitudes: Callable[[], Tensor], keep: int) -> list[int]:
        """Choose the dimensions that the residual stream loses, and record the others."""
        scores = magnitudes() if self.scores.hidden is None else self.scores.hidden
        removed = least_important(scores, keep)
        self.kept.hidden = _others(removed, len(scores))
        return removed

    def _mask_channels(self, layer: int, path: str, removed: Sequence[int]) -> None:
        module: Any = encoder_layers(self.original)[layer].get_submodule(path)
        mask = torch.ones(module.in_features)
        mask[list(removed)] = 0
        self.masks[module] = mask

    def _compare(self, step: str) -> None:
        with _masked(self.masks):
            reference = float_outputs(self.original, self.batch)
        self.differences[step] = check_same_outputs(step, float_outputs(self.pruned, self.batch), reference)


def least_important(scores: Tensor, keep: int) -> list[int]:
    """Return the indices of all but the `keep` highest scores, ascending; of equal scores the first is kept."""
    order = torch.argsort(scores, descending=True, stable=True)
    return sorted(order[keep:].tolist())


def _others(removed: Sequence[int], count: int) -> list[int]:
    gone = set(removed)
    return [unit for unit in range(count) if unit not in gone]


def _untied_copy(model: PreTrainedModel) -> Any:
    """Copy a model without tied parameters, because every module is pruned separately."""
    clone: Any = copy.deepcopy(model)
    clone.set_attn_implementation("eager")
    for name in model.all_tied_weights_keys:
        path, _, attribute = name.rpartition(".")
        owner = clone.get_submodule(path)
        setattr(owner, attribute, nn.Parameter(getattr(owner, attribute).detach().clone()))
    return use_dense_attention(clone.requires_grad_(True))


@contextmanager
def _masked(masks: Mapping[nn.Module, Tensor]) -> Iterator[None]:
    """Multiply the input of each module by its mask (features,) inside the block."""

    def hook(mask: Tensor) -> Any:
        return lambda _module, inputs: (inputs[0] * mask, *inputs[1:])

    handles = [module.register_forward_pre_hook(hook(mask)) for module, mask in masks.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
