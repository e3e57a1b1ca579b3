"""Reduce the width: fewer feed-forward neurons, attention heads and hidden dimensions, in shapes of stock models.

torch-pruning's dependency graph determines which tensors are coupled, and its group magnitude importance (Fang et al.
2023, DepGraph) which channels are removed: the squared L2 norm of the weights that belong to a channel, averaged over
the tensors of its group, without biases and embeddings.
Each layer keeps the same number of neurons and heads, chosen for each layer; the hidden dimensions are chosen once,
because the residual stream runs through all layers.
"""

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch_pruning as tp
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from biosqueeze.errors import UsageError
from biosqueeze.models.cuts.pruning import WidthPruning, least_important
from biosqueeze.models.cuts.sliced_pruning import RelativePruning, SlicedPruning
from biosqueeze.models.cuts.unit_scores import KeptUnits, UnitScores
from biosqueeze.models.families import family_of, unprojected_hidden
from biosqueeze.models.layers import encoder_layers, query_group, set_sizes
from biosqueeze.models.loading.load import new_model, skeleton
from biosqueeze.models.verify import check_same_outputs, float_outputs


@dataclass(frozen=True)
class Widths:
    """Sizes after the cut; None keeps a size. The hidden size is always heads x head size."""

    ffn: int | None = None
    heads: int | None = None
    head_size: int | None = None

    @property
    def empty(self) -> bool:
        """Whether all sizes are kept."""
        return self.ffn is None and self.heads is None and self.head_size is None


@dataclass
class NarrowedModel:
    """A narrower stock model, and the largest difference of each step from its reference on a padded batch."""

    model: PreTrainedModel
    differences: dict[str, float] = field(default_factory=dict)
    kept: KeptUnits = field(default_factory=KeptUnits)


def choose_widths(config: PreTrainedConfig, ffn: int | None, heads: int | None, hidden: int | None) -> Widths:
    """Check requested sizes against a config.

    Raises:
        UsageError: a size is larger than the model's, is not a multiple of the head size, or contradicts another; or
            the family does not support narrowing.
    """
    family = family_of(config)
    if not family.supports_narrowing and any(size is not None for size in (ffn, heads, hidden)):
        raise UsageError(
            f"--width, --ffn, --heads and --hidden cannot cut a model of type {family.name}, whose layers "
            f"{'share their weights' if family.shares_layers else 'have bottlenecks'}; give --layers"
            f"{', or --embedding for fewer parameters' if family.embedding_projection else ''}"
        )
    all_heads, all_ffn = getattr(config, family.heads_key), getattr(config, family.ffn_key)
    size = config.hidden_size // all_heads
    if ffn is not None and not 1 <= ffn <= all_ffn:
        raise UsageError(f"--ffn {ffn} cannot be cut from {all_ffn} neurons; give a number from 1 to {all_ffn}")
    if heads is not None and not 1 <= heads <= all_heads:
        raise UsageError(f"--heads {heads} cannot be kept of {all_heads}; give a number from 1 to {all_heads}")
    new_heads, new_size = (heads or all_heads, size) if hidden is None else _heads_for(hidden, heads, size, all_heads)
    if family.keeps_head_size and new_size != size:
        reason = "whose size determines how positions rotate them" if family.rotary else "which two projections share"
        raise UsageError(
            f"--hidden {hidden} would narrow the heads of a {family.name}, {reason}; with fewer heads: "
            f"{_multiples(size, all_heads)}"
        )
    _check_group(config, new_heads)
    _check_projection(config, new_heads * new_size)
    return Widths(
        ffn=None if ffn == all_ffn else ffn,
        heads=None if new_heads == all_heads else new_heads,
        head_size=None if new_size == size else new_size,
    )


def _heads_for(hidden: int, heads: int | None, size: int, all_heads: int) -> tuple[int, int]:
    """Return number and size of heads for a hidden size: fewer heads if it is a multiple, else narrower ones."""
    if heads is None:
        heads = hidden // size if hidden % size == 0 and hidden <= size * all_heads else all_heads
    if heads < 1 or hidden % heads or not 1 <= hidden // heads <= size:
        raise UsageError(
            f"--hidden {hidden} is not {heads} heads of at most {size} dimensions each; possible with fewer heads: "
            f"{_multiples(size, all_heads)}; with narrower ones: multiples of {heads or all_heads} (--heads) up to "
            f"{size * (heads or all_heads)}"
        )
    return heads, hidden // heads


def _multiples(size: int, count: int) -> str:
    return ", ".join(str(size * n) for n in range(1, count)) or "none"


def _check_group(config: PreTrainedConfig, heads: int) -> None:
    group = query_group(config)
    if heads % group:
        fitting = ", ".join(str(n) for n in range(group, getattr(config, family_of(config).heads_key) + 1, group))
        raise UsageError(
            f"{heads} heads cannot be kept: {group} query heads share each key and value head of this "
            f"{family_of(config).name}, and are cut together; give --heads {fitting}"
        )


def _check_projection(config: PreTrainedConfig, hidden: int) -> None:
    if hidden == unprojected_hidden(config):
        raise UsageError(
            f"the hidden size would equal that of the embeddings, {hidden}, and a stock ELECTRA of that shape has "
            "no projection between them; give another --width, --heads or --hidden, or cut the embeddings too "
            "(--embedding)"
        )


def narrowed_config(config: PreTrainedConfig, widths: Widths) -> PreTrainedConfig:
    """Return the config after the cut. ELECTRA's embeddings keep the hidden size if they had it before."""
    family = family_of(config)
    heads, hidden = getattr(config, family.heads_key), None
    if widths.heads is not None or widths.head_size is not None:
        hidden = (widths.heads or heads) * (widths.head_size or config.hidden_size // heads)
    changed = copy.deepcopy(config)
    if hidden is not None and getattr(config, "embedding_size", None) == config.hidden_size:
        changed.embedding_size = hidden
    set_sizes(changed, hidden=hidden, heads=widths.heads, ffn=widths.ffn)
    return changed


def narrow(model: PreTrainedModel, widths: Widths, scores: UnitScores | None = None) -> NarrowedModel:
    """Prune a model's width and rebuild it as a stock model.

    Every step is compared on a padded batch: a model without some neurons or heads with the original in which they
    are masked, narrower heads with rotated heads in which the other dimensions are zero, and the stock model with the
    pruned one. Fewer hidden dimensions change the statistics of LayerNorm, so for that cut there is no reference.

    Args:
        model: is not changed.
        widths: sizes after the cut.
        scores: by which neurons, heads and hidden dimensions are chosen; by magnitude where there are none.

    Raises:
        SqueezeError: a difference is more than rounding.
    """
    config = narrowed_config(model.config, widths)
    pruning = open_pruning(model, scores)
    if widths.ffn is not None:
        pruning.cut_ffn(widths.ffn)
    if widths.heads is not None:
        pruning.cut_heads(widths.heads)
    if widths.head_size is not None:
        pruning.cut_head_size(widths.head_size)
    if config.hidden_size != model.config.hidden_size:
        pruning.cut_hidden(config, type(model).__name__)
    stock = new_model(config, type(model).__name__, seed=None)
    stock.load_state_dict(pruning.pruned.state_dict(), strict=True)
    rebuilt, reference = float_outputs(stock, pruning.batch), float_outputs(pruning.pruned, pruning.batch)
    pruning.differences["stock model"] = check_same_outputs("rebuilding the narrower model", rebuilt, reference)
    return NarrowedModel(stock, pruning.differences, pruning.kept)


def open_pruning(model: PreTrainedModel, scores: UnitScores | None = None) -> WidthPruning:
    """Return the pruning that a model's family needs; see `WidthPruning`."""
    family = family_of(model.config)
    if family.attention_bias:
        return RelativePruning(model, scores)
    return SlicedPruning(model, scores) if family.keeps_head_size else _WidthPruning(model, scores)


class _WidthPruning(WidthPruning):
    """Prune along torch-pruning's dependency graph."""

    def __init__(self, model: PreTrainedModel, scores: UnitScores | None = None) -> None:
        super().__init__(model, scores)
        if bias := self._shared_bias():
            bias.requires_grad_(False)  # not traced: it would couple the channels of all layers

    def neuron_magnitudes(self) -> Tensor:
        """Compute torch-pruning's group magnitudes of the neurons of every layer."""
        return self._magnitudes(self.family.ffn_input)

    def head_magnitudes(self) -> Tensor:
        """Compute torch-pruning's group magnitudes of the heads of every layer."""
        attention: Any = encoder_layers(self.pruned)[0].get_submodule(self.family.attention)
        return self._magnitudes(self.family.query, attention.attention_head_size)

    def _magnitudes(self, path: str, size: int = 1) -> Tensor:
        """Sum the group magnitudes of the outputs of a module over units of a size: (layers, units)."""
        graph = _graph(self.pruned, self.batch)
        modules = [layer.get_submodule(path) for layer in encoder_layers(self.pruned)]
        return torch.stack([_importance(_group(graph, module)).view(-1, size).sum(1) for module in modules])

    def cut_ffn(self, keep: int) -> None:
        """Keep this number of neurons in every layer."""
        graph = _graph(self.pruned, self.batch)
        for index, removed in enumerate(self._removed_neurons(keep)):
            _prune(graph, encoder_layers(self.pruned)[index].get_submodule(self.family.ffn_input), removed)
            self._mask_channels(index, self.family.ffn_output, removed)
        self._compare(f"keeping {keep} ffn neurons")

    def cut_heads(self, keep: int) -> None:
        """Keep this number of heads in every layer, and the hidden size."""
        graph = _graph(self.pruned, self.batch)
        chosen = self._removed_heads(keep)
        layers: Any = encoder_layers(self.pruned)
        for index, (layer, heads) in enumerate(zip(layers, chosen, strict=True)):
            attention: Any = layer.get_submodule(self.family.attention)
            size = attention.attention_head_size
            removed = [head * size + i for head in heads for i in range(size)]
            _prune(graph, layer.get_submodule(self.family.query), removed)
            setattr(attention, self.family.head_count_attribute, keep)
            attention.all_head_size = keep * size
            self._mask_channels(index, self.family.attention_output, removed)
        if bias := self._shared_bias():
            kept = [head for head in range(bias.embedding_dim) if head not in chosen[0]]
            bias.weight = nn.Parameter(bias.weight[:, kept].clone(), requires_grad=False)
            bias.embedding_dim = keep
        self._compare(f"keeping {keep} heads")

    def _shared_bias(self) -> Any:
        """Return the relative attention bias of all layers; None if there is none."""
        path = self.family.shared_bias
        return self.pruned.base_model.get_submodule(path) if path else None

    def _narrow_all_heads(self, size: int, keep: int) -> None:
        graph = _graph(self.pruned, self.batch)
        for layer in encoder_layers(self.pruned):
            query: Any = layer.get_submodule(self.family.query)
            self._narrow_heads(graph, layer, [i for i in range(query.out_features) if i % size >= keep], keep)

    def _narrow_heads(self, graph: Any, layer: nn.Module, removed: Sequence[int], keep: int) -> None:
        attention: Any = layer.get_submodule(self.family.attention)
        query: Any = layer.get_submodule(self.family.query)
        _prune(graph, query, removed)
        with torch.no_grad():  # attention divides by the root of the head size, which is smaller now
            for tensor in (query.weight, query.bias):
                tensor *= (keep / attention.attention_head_size) ** 0.5
        attention.attention_head_size, attention.scaling = keep, keep**-0.5
        attention.all_head_size = query.out_features

    def cut_hidden(self, config: PreTrainedConfig, architecture: str) -> None:
        """Narrow the residual stream, then the square layers of pooler and head."""
        trunk = self.pruned.base_model
        projected = getattr(trunk, "embeddings_project", None)
        root = projected or trunk.embeddings.word_embeddings
        graph = _graph(self.pruned, self.batch)
        removed = self._removed_hidden(lambda: _importance(_group(graph, root)), config.hidden_size)
        _prune(graph, root, removed)
        self._cut_squares(skeleton(config, architecture), removed)

    def _cut_squares(self, target: PreTrainedModel, removed: Sequence[int]) -> None:
        """Prune the outputs of layers that map hidden to hidden, such as the pooler's.

        A layer before the vocabulary projection loses the same dimensions as the tied embedding.
        """
        sizes = {name: module.out_features for name, module in target.named_modules() if isinstance(module, nn.Linear)}
        decoder = self.pruned.get_output_embeddings() if self.original.all_tied_weights_keys else None
        for name, module in self.pruned.named_modules():
            if isinstance(module, nn.Linear) and module.out_features > sizes[name]:
                graph = _graph(self.pruned, self.batch)
                group = _group(graph, module)
                feeds = any(item.dep.target.module is decoder for item in group)
                chosen = removed if feeds else least_important(_importance(group), sizes[name])
                _prune(graph, module, chosen)


def _graph(model: nn.Module, batch: Mapping[str, Tensor]) -> Any:
    """Build the dependency graph of a model."""
    # BERT has the vocabulary's bias outside a layer too; it has no channels to prune.
    without_layer = [
        p for module in model.modules() if any(module.children()) for p in module.parameters(recurse=False)
    ]
    short = {name: tensor[:2, :7] for name, tensor in batch.items()}  # tracing depends on operations, not on sizes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tp.DependencyGraph().build_dependency(model, short, ignored_params=without_layer, verbose=False)


def _pruning_function(module: nn.Module) -> Any:
    embedding = isinstance(module, nn.Embedding)
    return tp.prune_embedding_out_channels if embedding else tp.prune_linear_out_channels


def _channels(module: Any) -> int:
    return int(module.embedding_dim if isinstance(module, nn.Embedding) else module.out_features)


def _group(graph: Any, module: nn.Module) -> Any:
    """Return all that is coupled with the outputs of a module."""
    channels = list(range(_channels(module)))
    return graph.get_pruning_group(module, _pruning_function(module), idxs=channels)


def _prune(graph: Any, module: nn.Module, removed: Sequence[int]) -> None:
    graph.get_pruning_group(module, _pruning_function(module), idxs=list(removed)).prune()


def _importance(group: Any) -> Tensor:
    """Compute the group magnitude of every channel: (channels,)."""
    scores: Tensor = tp.importance.GroupMagnitudeImportance(p=2, normalizer=None)(group)
    return scores.detach()
