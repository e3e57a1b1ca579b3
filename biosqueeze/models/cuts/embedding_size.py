"""Reduce the embedding size of an ELECTRA or ALBERT, from which a linear layer makes the hidden size.

What this projection reads depends on a token, its position and its type alone, so its inputs are known for the whole
vocabulary without any text. The dimensions are kept that add most to its outputs, by the product of weight and input of
Wanda (Sun et al. 2024, equation 1) over all tokens; then the projection is fitted to the original's outputs there.
"""

import copy
from collections.abc import Iterator
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
        raise UsageError(
            f"--embedding cuts an ELECTRA or ALBERT; the embeddings of a {family.name} have the hidden size, which "
            "--hidden cuts"
        )
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


def embedding_steps(former: PreTrainedConfig, config: PreTrainedConfig) -> tuple[str, ...]:
    """Say for the plan which embedding size is kept of a former one."""
    size, kept = (getattr(each, "embedding_size", None) for each in (former, config))
    return () if size == kept else (f"keep {kept} of {size} embedding dimensions",)


def keep_embedding_size(model: PreTrainedModel, size: int, *, fits: bool = True) -> CutEmbedding:
    """Keep the embedding dimensions that add most to the projection's outputs.

    Args:
        model: in eval mode; is not changed.
        size: dimensions to keep.
        fits: whether the projection is fitted to the original's outputs.

    Raises:
        UsageError: as for `embedding_config`.
    """
    config, architecture = embedding_config(model.config, size), type(model).__name__
    cut = new_model(config, architecture, seed=None)
    with torch.no_grad():
        kept = _largest(model, size)
        axes = changed_axes(model.config, config, architecture)
        state = {
            name: tensor.index_select(axes[name], kept) if name in axes else tensor
            for name, tensor in model.state_dict().items()
        }
        if _projection(model) is None:  # of an ELECTRA whose embeddings had the hidden size
            path = next(name for name, module in cut.named_modules() if module is _projection(cut))
            hidden = model.config.hidden_size
            state |= {f"{path}.weight": torch.eye(hidden)[:, kept], f"{path}.bias": torch.zeros(hidden)}
        cut.load_state_dict(state, strict=True)
        if fits:
            _fit(cut, model)
        return CutEmbedding(cut, _explained(cut, model))


def _largest(model: PreTrainedModel, size: int) -> Tensor:
    """Return the dimensions with the largest summed squares of weight times input over all tokens, ascending."""
    squares = torch.stack([states.square().sum(0) for states in _embedded(model)]).sum(0)
    projection = _projection(model)
    scores = squares if projection is None else squares * projection.weight.double().square().sum(0)
    kept: Tensor = scores.topk(size).indices.sort().values
    return kept


def _fit(cut: PreTrainedModel, original: PreTrainedModel) -> None:
    """Fit the projection to the original's outputs."""
    projection: Any = _projection(cut)
    equations = NormalEquations(projection.in_features, projection.out_features)
    for inputs, target in zip(_embedded(cut), _projected(original), strict=True):
        equations.add(inputs, target)
    weight, bias = equations.solve(_DAMPING)
    projection.weight.copy_(weight)
    projection.bias.copy_(bias)


def _explained(cut: PreTrainedModel, original: PreTrainedModel) -> float:
    """Return the share of the variance of the original's projected embeddings that the cut model's explain."""
    count, total = 0, torch.zeros((), dtype=torch.float64)
    for target in _projected(original):
        count, total = count + len(target), total + target.sum(0)
    errors = variance = 0.0
    for output, target in zip(_projected(cut), _projected(original), strict=True):
        errors += float((target - output).square().sum())
        variance += float((target - total / count).square().sum())
    return 1.0 - errors / variance


def _projected(model: PreTrainedModel) -> Iterator[Tensor]:
    """Yield the hidden states that enter the first layer, as `_embedded` yields embeddings."""
    projection = _projection(model)
    for states in _embedded(model):
        yield states if projection is None else states @ projection.weight.double().T + projection.bias.double()


def _projection(model: PreTrainedModel) -> Any:
    """Return the projection; None of an ELECTRA whose embeddings have the hidden size."""
    modules = dict(model.base_model.named_modules())
    return modules.get(family_of(model.config).embedding_projection)


def _embedded(model: PreTrainedModel) -> Iterator[Tensor]:
    """Yield normed embeddings of all tokens at positions and of types in turn: (tokens, embedding size), float64."""
    embeddings: Any = model.base_model.embeddings
    config: Any = model.config
    length = min(_LENGTH, config.max_position_embeddings)
    rows = torch.arange(config.vocab_size).split(length)
    for start in range(0, len(rows), _SEQUENCES):
        ids = torch.nn.utils.rnn.pad_sequence(rows[start : start + _SEQUENCES], batch_first=True)
        types = torch.arange(len(ids))[:, None].expand_as(ids) % config.type_vocab_size
        yield embeddings(input_ids=ids, token_type_ids=types).double().flatten(0, 1)
