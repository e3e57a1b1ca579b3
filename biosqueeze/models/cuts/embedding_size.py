"""Reduce the embedding size of an ELECTRA or ALBERT, from which a linear layer makes the hidden size.

What this projection reads depends on a token, its position and its type alone, so its inputs are known for the whole
vocabulary. Tokens count as often as they occur in a text, if there is one. The new dimensions are the principal
components of the embeddings; with a decoder that is tied to them, which no rotation of the embeddings leaves intact,
those dimensions are kept that add most to the outputs, by the product of weight and input of Wanda (Sun et al. 2024,
equation 1). Then the projection is fitted to the original's outputs.
"""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from biosqueeze.errors import UsageError
from biosqueeze.models.cuts.changed_axes import changed_axes
from biosqueeze.models.cuts.normal_equations import NormalEquations
from biosqueeze.models.families import family_of
from biosqueeze.models.loading.load import new_model

_DAMPING = 1e-6  # of the fit, see `NormalEquations.solve`; the tokens are many times the dimensions
_SMOOTHING = 0.5  # of an occurrence that every token has beside those in the text
_LENGTH = 128  # positions that tokens are read at
_SEQUENCES = 16  # of these in a batch


@dataclass(frozen=True)
class CutEmbedding:
    """A stock model with smaller embeddings."""

    model: PreTrainedModel
    explained: float
    """Share of the variance of the original's projected embeddings, over the vocabulary, that the new ones have."""


def embedding_config(config: PreTrainedConfig, size: int | None) -> PreTrainedConfig:
    """Return the config with another embedding size; None keeps it.

    Raises:
        UsageError: the family has no embedding size of its own, or not this one.
    """
    if size is None:
        return config
    family, former = family_of(config), getattr(config, "embedding_size", None)
    if not family.embedding_projection or former is None:
        of_hidden_size = former in (None, config.hidden_size)
        what = "have the hidden size, which --hidden cuts" if of_hidden_size else "keep their size"
        raise UsageError(f"--embedding cuts an ELECTRA or ALBERT; the embeddings of a {family.name} {what}")
    if not 1 <= size < former:
        raise UsageError(f"--embedding {size} cannot be cut from {former} dimensions; give 1 to {former - 1}")
    if size == config.hidden_size and family.projects_unequal_alone:
        raise UsageError(
            f"--embedding {size} would equal the hidden size, and a stock ELECTRA of that shape has no projection "
            "between them; give another"
        )
    changed = copy.deepcopy(config)
    changed.embedding_size = size
    return changed


def embedding_step(former: PreTrainedConfig, config: PreTrainedConfig) -> str:
    """Say for the plan which embedding size is kept of a former one."""
    return f"keep {config.embedding_size} of {former.embedding_size} embedding dimensions"


def keep_embedding_size(
    model: PreTrainedModel, size: int, counts: Tensor | None = None, *, fits: bool = True
) -> CutEmbedding:
    """Make smaller embeddings.

    Args:
        model: in eval mode; is not changed.
        size: dimensions of the new ones.
        counts: how often each token occurs, (vocabulary,); without it all are alike.
        fits: whether the projection is fitted to the original's outputs.

    Raises:
        UsageError: as for `embedding_config`.
    """
    config, architecture = embedding_config(model.config, size), type(model).__name__
    weights = (torch.zeros(model.config.vocab_size) if counts is None else counts).double() + _SMOOTHING
    cut = new_model(config, architecture, seed=None)
    with torch.no_grad():
        reduced = _chosen if model.get_output_embeddings() is not None else _rotated
        cut.load_state_dict(model.state_dict() | reduced(model, cut, weights), strict=True)
        if fits:
            _fit(cut, model, weights)
        return CutEmbedding(cut, _explained(cut, model, weights))


def _chosen(model: PreTrainedModel, cut: PreTrainedModel, weights: Tensor) -> dict[str, Tensor]:
    """Return the changed tensors with those dimensions whose weight times input has the largest summed squares."""
    weight, bias = _projection(model)
    squares = torch.zeros(model.config.embedding_size, dtype=torch.float64)
    for states, counts in _embedded(_embeddings(model), weights):
        squares += counts @ states.square()
    kept = (squares * weight.square().sum(0)).topk(cut.config.embedding_size).indices.sort().values
    axes, state = changed_axes(model.config, cut.config, type(model).__name__), model.state_dict()
    changed = {name: state[name].index_select(axis, kept) for name, axis in axes.items()}
    return changed | _as_projection(cut, weight[:, kept], bias)


def _rotated(model: PreTrainedModel, cut: PreTrainedModel, weights: Tensor) -> dict[str, Tensor]:
    """Return the changed tensors with the principal components of the embeddings as dimensions.

    The norm subtracts an embedding's mean and divides by its length, up to a factor. A rotation changes neither if what
    it gives has a mean of zero; the new norm has no weights of its own, those of the former are the projection's.
    """
    plain, former = copy.deepcopy(_embeddings(model)), _embeddings(model).LayerNorm
    plain.LayerNorm.reset_parameters()
    rotation = _principal_components(_embedded(plain, weights), cut.config.embedding_size)
    changed = {}
    for name, table in _tables(model).items():
        centred = table.double() - table.double().mean(1, keepdim=True)
        changed[name] = (centred @ rotation.T).float()
    for name, tensor in plain.LayerNorm.state_dict().items():
        changed[f"{_path(cut, _embeddings(cut).LayerNorm)}.{name}"] = tensor[: len(rotation)]
    weight, bias = _projection(model)
    length = (rotation.shape[1] / rotation.shape[0]) ** 0.5  # of what the norm gives: the root of the dimensions
    scaled = weight * former.weight.double() @ rotation.T * length
    return changed | _as_projection(cut, scaled, bias + weight @ former.bias.double())


def _principal_components(embedded: Iterable[tuple[Tensor, Tensor]], size: int) -> Tensor:
    """Return the matrix (size, embedding size) of the largest components of rows of mean zero.

    Its rows sum to zero, which takes one dimension, and those left are as long and at right angles as the components.
    """
    moment = torch.stack([(states * counts[:, None]).T @ states for states, counts in embedded]).sum(0)
    components = torch.linalg.eigh(moment).eigenvectors.T[len(moment) - size + 1 :]
    ones = torch.ones(size, 1, dtype=torch.float64)
    of_mean_zero = torch.linalg.qr(torch.cat([ones, torch.eye(size, dtype=torch.float64)[:, 1:]], dim=1)).Q[:, 1:]
    rotation: Tensor = of_mean_zero @ components
    return rotation


def _fit(cut: PreTrainedModel, original: PreTrainedModel, weights: Tensor) -> None:
    """Fit the projection to the original's outputs."""
    projection: Any = _projection_layer(cut)
    equations = NormalEquations(projection.in_features, projection.out_features)
    for (inputs, weight), (target, _) in zip(
        _embedded(_embeddings(cut), weights), _projected(original, weights), strict=True
    ):
        equations.add(inputs, target, weight.sqrt())
    weight, bias = equations.solve(_DAMPING)
    projection.weight.copy_(weight)
    projection.bias.copy_(bias)


def _explained(cut: PreTrainedModel, original: PreTrainedModel, weights: Tensor) -> float:
    """Return the share of the variance of the original's projected embeddings that the cut model's explain."""
    errors = squares = 0.0
    total = torch.zeros(original.config.hidden_size, dtype=torch.float64)
    for (output, weight), (target, _) in zip(_projected(cut, weights), _projected(original, weights), strict=True):
        errors += float(weight @ (target - output).square().sum(1))
        squares += float(weight @ target.square().sum(1))
        total += weight @ target
    return 1.0 - errors / (squares - float(total.square().sum() / weights.sum()))


def _projected(model: PreTrainedModel, weights: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the hidden states that enter the first layer, as `_embedded` yields embeddings."""
    projection, bias = _projection(model)
    for states, weight in _embedded(_embeddings(model), weights):
        yield states @ projection.T + bias, weight


def _projection(model: PreTrainedModel) -> tuple[Tensor, Tensor]:
    """Return weight (hidden size, embedding size) and bias of the projection, in float64.

    An ELECTRA whose embeddings have the hidden size has none, and uses them as they are.
    """
    layer = _projection_layer(model)
    if layer is None:
        hidden = model.config.hidden_size
        return torch.eye(hidden, dtype=torch.float64), torch.zeros(hidden, dtype=torch.float64)
    return layer.weight.double(), layer.bias.double()


def _as_projection(cut: PreTrainedModel, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    path = _path(cut, _projection_layer(cut))
    return {f"{path}.weight": weight.float(), f"{path}.bias": bias.float()}


def _projection_layer(model: PreTrainedModel) -> Any:
    return dict(model.base_model.named_modules()).get(family_of(model.config).embedding_projection)


def _embeddings(model: PreTrainedModel) -> Any:
    return model.base_model.embeddings


def _tables(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return the embeddings of tokens, positions and types."""
    path = _path(model, _embeddings(model))
    tables = ("word_embeddings.weight", "position_embeddings.weight", "token_type_embeddings.weight")
    return {f"{path}.{name}": _embeddings(model).state_dict()[name] for name in tables}


def _path(model: PreTrainedModel, wanted: torch.nn.Module) -> str:
    return next(str(name) for name, module in model.named_modules() if module is wanted)


def _embedded(embeddings: Any, weights: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield normed embeddings of all tokens at positions and of types in turn, and the weights of these tokens.

    These are (tokens, embedding size) and (tokens,), float64.
    """
    length = min(_LENGTH, embeddings.position_embeddings.num_embeddings)
    types_count = embeddings.token_type_embeddings.num_embeddings
    for chunk in torch.arange(len(weights)).split(length * _SEQUENCES):
        ids = torch.nn.utils.rnn.pad_sequence(chunk.split(length), batch_first=True)
        types = torch.arange(len(ids))[:, None].expand_as(ids) % types_count
        states = embeddings(input_ids=ids, token_type_ids=types).double().flatten(0, 1)
        yield states[: len(chunk)], weights[chunk]  # padding is at the end
