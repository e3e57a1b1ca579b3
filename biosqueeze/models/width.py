"""Fewer feed-forward neurons, attention heads and hidden dimensions, in shapes that stock transformers can load.

Which tensors hang together is found by torch-pruning's dependency graph, and what goes is decided by its group
magnitude importance (Fang et al. 2023, DepGraph): the squared L2 norm of the weights that a channel touches, averaged
over the tensors of its group.
Each layer keeps as many neurons and heads as every other, but not the same ones; the hidden dimensions are one
choice, because the residual stream runs through all layers.
"""

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch_pruning as tp
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from biosqueeze.errors import UsageError
from biosqueeze.models.count import skeleton
from biosqueeze.models.families import Family, family_of
from biosqueeze.models.head_rotation import turn_heads
from biosqueeze.models.load import new_model
from biosqueeze.models.verify import ensure_same, outputs, padded_batch


@dataclass(frozen=True)
class Widths:
    """What to cut to; None leaves a size as it is. The hidden size is always heads x head size."""

    ffn: int | None = None
    heads: int | None = None
    head_size: int | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing is to be cut."""
        return self.ffn is None and self.heads is None and self.head_size is None


@dataclass
class Narrowed:
    """A narrower stock model, and how far each step was from its reference on a padded batch."""

    model: PreTrainedModel
    differences: dict[str, float] = field(default_factory=dict)


def choose_widths(config: PreTrainedConfig, ffn: int | None, heads: int | None, hidden: int | None) -> Widths:
    """Check the sizes asked for against a config.

    Raises:
        UsageError: a size is larger than what is there, is no multiple of the head size, or contradicts another; or
            the family keeps its width.
    """
    family = family_of(config)
    if not family.narrows and any(size is not None for size in (ffn, heads, hidden)):
        raise UsageError(
            f"--ffn, --heads and --hidden cannot cut a model of type {family.name}, whose layers "
            f"{'share their weights' if family.shares_layers else 'have bottlenecks'}; give --layers"
        )
    has_heads, has_ffn = getattr(config, family.heads_key), getattr(config, family.ffn_key)
    size = config.hidden_size // has_heads
    if ffn is not None and not 1 <= ffn <= has_ffn:
        raise UsageError(f"--ffn {ffn} cannot be cut from {has_ffn} neurons; give a number from 1 to {has_ffn}")
    if heads is not None and not 1 <= heads <= has_heads:
        raise UsageError(f"--heads {heads} cannot be kept of {has_heads}; give a number from 1 to {has_heads}")
    kept, kept_size = (heads or has_heads, size) if hidden is None else _heads_for(hidden, heads, size, has_heads)
    _check_projection(config, kept * kept_size)
    return Widths(
        ffn=None if ffn == has_ffn else ffn,
        heads=None if kept == has_heads else kept,
        head_size=None if kept_size == size else kept_size,
    )


def _heads_for(hidden: int, heads: int | None, size: int, has_heads: int) -> tuple[int, int]:
    """How many heads of what size make a hidden size: fewer of them where that goes, or else narrower ones."""
    if heads is None:
        heads = hidden // size if hidden % size == 0 and hidden <= size * has_heads else has_heads
    if heads < 1 or hidden % heads or not 1 <= hidden // heads <= size:
        fewer = ", ".join(str(size * n) for n in range(1, has_heads + 1))
        raise UsageError(
            f"--hidden {hidden} cannot be made of {heads} heads with at most {size} dimensions each; possible with "
            f"fewer heads: {fewer}; with narrower ones: the multiples of --heads up to {size} times that"
        )
    return heads, hidden // heads


def _check_projection(config: PreTrainedConfig, hidden: int) -> None:
    embedding = getattr(config, "embedding_size", config.hidden_size)
    if embedding != config.hidden_size and hidden == embedding:
        raise UsageError(
            f"the hidden size would become that of the embeddings, {embedding}, and a stock ELECTRA then has "
            "no projection between them to keep; give another number of --heads, or another --hidden"
        )


def narrowed_config(config: PreTrainedConfig, widths: Widths) -> PreTrainedConfig:
    """The config after the cut. ELECTRA's embeddings follow the hidden size where they had the same."""
    family = family_of(config)
    heads, hidden = getattr(config, family.heads_key), None
    if widths.heads is not None or widths.head_size is not None:
        hidden = (widths.heads or heads) * (widths.head_size or config.hidden_size // heads)
    changed = copy.deepcopy(config)
    if hidden is not None and getattr(config, "embedding_size", None) == config.hidden_size:
        changed.embedding_size = hidden
    for key, value in family.shape_changes(hidden=hidden, heads=widths.heads, ffn=widths.ffn).items():
        setattr(changed, key, value)
    return changed


def narrow(model: PreTrainedModel, widths: Widths) -> Narrowed:
    """Cut a model's width and rebuild it as a stock model.

    Every step is compared on a padded batch: the cut of neurons and heads with the original in which they are
    silenced, narrower heads with turned ones in which the rest is zero, the stock model with the pruned one. Where
    LayerNorm loses dimensions its statistics change, so for the cut of the hidden size itself there is no reference but
    the pruned model.

    Raises:
        SqueezeError: a difference is more than rounding.
    """
    config = narrowed_config(model.config, widths)
    surgery = _Surgery(model)
    if widths.ffn is not None:
        surgery.cut_ffn(widths.ffn)
    if widths.heads is not None:
        surgery.cut_heads(widths.heads)
    if widths.head_size is not None:
        surgery.cut_head_size(widths.head_size)
    if config.hidden_size != model.config.hidden_size:
        surgery.cut_hidden(config, type(model).__name__)
    stock = new_model(config, type(model).__name__, seed=0)
    stock.load_state_dict(surgery.pruned.state_dict(), strict=True)
    found, wanted = outputs(stock, surgery.batch), outputs(surgery.pruned, surgery.batch)
    surgery.differences["stock model"] = ensure_same("rebuilding the narrower model", found, wanted)
    return Narrowed(stock, surgery.differences)


class _Surgery:
    """A copy of a model on its way to being narrower, and the original with what is gone silenced by hooks."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.original = model
        self.family = family_of(model.config)
        self.batch = padded_batch(model)
        self.pruned = _untied_copy(model)
        self.differences: dict[str, float] = {}
        self.silenced: dict[nn.Module, Tensor] = {}

    def cut_ffn(self, keep: int) -> None:
        """Keep that many neurons in every layer."""
        graph = _graph(self.pruned, self.batch)
        for index, layer in enumerate(_layers(self.pruned, self.family)):
            group = _group(graph, layer.get_submodule(self.family.ffn_input))
            gone = _least(_importance(group), keep)
            _prune(graph, layer.get_submodule(self.family.ffn_input), gone)
            self._silence(index, self.family.ffn_output, gone)
        self._compare(f"keeping {keep} ffn neurons")

    def cut_heads(self, keep: int) -> None:
        """Keep that many heads in every layer; the hidden size stays for now."""
        graph = _graph(self.pruned, self.batch)
        for index, layer in enumerate(_layers(self.pruned, self.family)):
            attention: Any = layer.get_submodule(self.family.attention)
            query = layer.get_submodule(self.family.query)
            size = attention.attention_head_size
            scores = _importance(_group(graph, query)).view(-1, size).sum(1)  # (heads,)
            gone = [head * size + i for head in _least(scores, keep) for i in range(size)]
            _prune(graph, query, gone)
            setattr(attention, self.family.head_count_attribute, keep)
            attention.all_head_size = keep * size
            self._silence(index, self.family.attention_output, gone)
        self._compare(f"keeping {keep} heads")

    def cut_head_size(self, keep: int) -> None:
        """Keep that many dimensions of every head, of which the first are made to carry most."""
        layers = _layers(self.pruned, self.family)
        size: int = layers[0].get_submodule(self.family.attention).attention_head_size
        for layer in layers:
            turn_heads(layer, self.family, size)
        self._compare("turning the heads")
        reference = copy.deepcopy(self.pruned)
        graph = _graph(self.pruned, self.batch)
        for layer, whole in zip(layers, _layers(reference, self.family), strict=True):
            gone = [i for i in range(layer.get_submodule(self.family.query).out_features) if i % size >= keep]
            _empty(whole, (self.family.query, self.family.value), gone)
            self._narrow_heads(graph, layer, gone, keep)
        found, wanted = outputs(self.pruned, self.batch), outputs(reference, self.batch)
        what = f"keeping {keep} dimensions of each head"
        self.differences[what] = ensure_same(what, found, wanted)

    def _narrow_heads(self, graph: Any, layer: nn.Module, gone: Sequence[int], keep: int) -> None:
        attention: Any = layer.get_submodule(self.family.attention)
        query: Any = layer.get_submodule(self.family.query)
        _prune(graph, query, gone)
        with torch.no_grad():  # products are divided by the root of the head size, which is another one now
            for tensor in (query.weight, query.bias):
                tensor *= (keep / attention.attention_head_size) ** 0.5
        attention.attention_head_size, attention.scaling = keep, keep**-0.5
        attention.all_head_size = query.out_features

    def cut_hidden(self, config: PreTrainedConfig, architecture: str) -> None:
        """Narrow the residual stream, and after it the square layers of pooler and head."""
        trunk = self.pruned.base_model
        projected = getattr(trunk, "embeddings_project", None)
        root = projected or trunk.embeddings.word_embeddings
        graph = _graph(self.pruned, self.batch)
        gone = _least(_importance(_group(graph, root)), config.hidden_size)
        _prune(graph, root, gone)
        self._cut_squares(skeleton(config, architecture), gone)

    def _cut_squares(self, target: PreTrainedModel, gone: Sequence[int]) -> None:
        """Layers such as the pooler's map hidden to hidden, so their outputs shrink too.

        One that feeds the vocabulary projection must lose the very dimensions that the tied embedding lost.
        """
        sizes = {name: module.out_features for name, module in target.named_modules() if isinstance(module, nn.Linear)}
        decoder = self.pruned.get_output_embeddings() if self.original.all_tied_weights_keys else None
        for name, module in self.pruned.named_modules():
            if isinstance(module, nn.Linear) and module.out_features > sizes[name]:
                graph = _graph(self.pruned, self.batch)
                group = _group(graph, module)
                feeds = any(item.dep.target.module is decoder for item in group)
                chosen = gone if feeds else _least(_importance(group), sizes[name])
                _prune(graph, module, chosen)

    def _silence(self, layer: int, path: str, gone: Sequence[int]) -> None:
        module = _layers(self.original, self.family)[layer].get_submodule(path)
        mask = torch.ones(module.in_features)
        mask[list(gone)] = 0
        self.silenced[module] = mask

    def _compare(self, what: str) -> None:
        with _masked(self.silenced):
            wanted = outputs(self.original, self.batch)
        self.differences[what] = ensure_same(what, outputs(self.pruned, self.batch), wanted)


def _layers(model: PreTrainedModel, family: Family) -> Any:
    return model.base_model.get_submodule(family.layers)


@torch.no_grad()
def _empty(layer: nn.Module, paths: Sequence[str], gone: Sequence[int]) -> None:
    """Zero some outputs of linear layers."""
    for path in paths:
        linear: Any = layer.get_submodule(path)
        linear.weight[list(gone)] = 0
        linear.bias[list(gone)] = 0


def _untied_copy(model: PreTrainedModel) -> Any:
    """A copy in which no two modules share a parameter, because each is pruned for itself."""
    clone: Any = copy.deepcopy(model)
    clone.set_attn_implementation("eager")
    for name in model.all_tied_weights_keys:
        path, _, attribute = name.rpartition(".")
        owner = clone.get_submodule(path)
        setattr(owner, attribute, nn.Parameter(getattr(owner, attribute).detach().clone()))
    return clone.requires_grad_(True)


def _graph(model: nn.Module, batch: Mapping[str, Tensor]) -> Any:
    """The dependency graph of the model as it is now."""
    # BERT keeps the vocabulary's bias beside the layer that owns it; it is no channel of anything.
    loose = [p for module in model.modules() if any(module.children()) for p in module.parameters(recurse=False)]
    short = {name: tensor[:2, :7] for name, tensor in batch.items()}  # tracing looks at operations, not at sizes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tp.DependencyGraph().build_dependency(model, short, ignored_params=loose, verbose=False)


def _pruning_function(module: nn.Module) -> Any:
    embedding = isinstance(module, nn.Embedding)
    return tp.prune_embedding_out_channels if embedding else tp.prune_linear_out_channels


def _channels(module: Any) -> int:
    return int(module.embedding_dim if isinstance(module, nn.Embedding) else module.out_features)


def _group(graph: Any, module: nn.Module) -> Any:
    """All that is coupled with the outputs of a module."""
    every = list(range(_channels(module)))
    return graph.get_pruning_group(module, _pruning_function(module), idxs=every)


def _prune(graph: Any, module: nn.Module, gone: Sequence[int]) -> None:
    graph.get_pruning_group(module, _pruning_function(module), idxs=list(gone)).prune()


def _importance(group: Any) -> Tensor:
    """Group magnitude of every channel: (channels,)."""
    scores: Tensor = tp.importance.GroupMagnitudeImportance(p=2, normalizer=None)(group)
    return scores.detach()


def _least(scores: Tensor, keep: int) -> list[int]:
    """The indices of all but the `keep` highest scores, in rising order; of equals the first stays."""
    order = torch.argsort(scores, descending=True, stable=True)
    return sorted(order[keep:].tolist())


@contextmanager
def _masked(masks: Mapping[nn.Module, Tensor]) -> Iterator[None]:
    """Multiply the input of each module by its mask: (features,)."""

    def hook(mask: Tensor) -> Any:
        return lambda _module, inputs: (inputs[0] * mask, *inputs[1:])

    handles = [module.register_forward_pre_hook(hook(mask)) for module, mask in masks.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
