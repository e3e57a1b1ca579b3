"""Change the vocabulary of a model: keep the rows of some tokens, or build the rows of new tokens from former ones."""

import copy
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedConfig, PreTrainedModel

from biosqueeze.models.cuts.changed_axes import changed_axes
from biosqueeze.models.families import first_position
from biosqueeze.models.loading.load import new_model
from biosqueeze.models.verify import check_same_outputs, float_outputs, padded_batch

_ID = "_token_id"


def named_ids(config: PreTrainedConfig) -> tuple[int, ...]:
    """Return the ids that a config names, such as `pad_token_id`, and those below that of RoBERTa's padding.

    RoBERTa's positions count from the id of its padding, so this id must stay as it is.
    """
    numbers = {number for value in _id_settings(config).values() for number in _listed(value)}
    return tuple(sorted(numbers | set(range(first_position(config)))))


def _id_settings(config: PreTrainedConfig) -> dict[str, Any]:
    return {key: value for key, value in config.to_dict().items() if key.endswith(_ID) and value is not None}


def _listed(value: Any) -> list[int]:
    return list(value) if isinstance(value, list | tuple) else [value]


def cut_config(config: PreTrainedConfig, kept: Sequence[int]) -> PreTrainedConfig:
    """Return the config of a model with the tokens of some ids, numbered from 0 in this order.

    An id of a special token that is not among them becomes None: it had no token.
    """
    number = {old: new for new, old in enumerate(kept)}
    changed = copy.deepcopy(config)
    changed.vocab_size = len(kept)
    for key, value in _id_settings(config).items():
        renumbered = [number[old] for old in _listed(value) if old in number]
        single = renumbered[0] if renumbered else None
        setattr(changed, key, renumbered if isinstance(value, list | tuple) else single)
    return changed


def moved_config(config: PreTrainedConfig, rows: int, special: Mapping[str, int | None]) -> PreTrainedConfig:
    """Return the config of a model for another tokenizer.

    Args:
        config: the former one.
        rows: number of ids.
        special: ids of the tokenizer's special tokens by their key in the config, such as `pad_token_id`.
    """
    changed = copy.deepcopy(config)
    changed.vocab_size = rows
    for key in _id_settings(config):
        setattr(changed, key, special.get(key))
    return changed


def with_rows(
    model: PreTrainedModel, config: PreTrainedConfig, sources: Sequence[Sequence[int]], seed: int = 0
) -> tuple[PreTrainedModel, float]:
    """Build a model of another vocabulary; its embeddings, decoder and bias have a row for each new token.

    Args:
        model: with the former vocabulary.
        config: with the new one.
        sources: for each new token the former ids whose rows are averaged; none for a row that is drawn from a normal
            distribution with mean and deviation of the former rows, by dimension (Hewitt 2021).
        seed: of these rows.

    Returns:
        The new model in eval mode, and its largest difference from the former one on a padded batch of tokens that
        have one source.

    Raises:
        SqueezeError: that difference is more than rounding.
    """
    architecture = type(model).__name__
    axes = _vocabulary_axes(model.config, architecture)
    state = {
        name: _rows(tensor.movedim(axes[name], 0), sources, seed).movedim(0, axes[name]) if name in axes else tensor
        for name, tensor in model.state_dict().items()
    }
    changed = new_model(config, architecture, seed=None)
    changed.load_state_dict(state, strict=True)
    return changed, _compare(model, changed, sources)


def _vocabulary_axes(config: PreTrainedConfig, architecture: str) -> dict[str, int]:
    """Return the tensors with a row (or column) for each token, and the axis: those that one more token enlarges."""
    larger = copy.deepcopy(config)
    larger.vocab_size += 1
    return changed_axes(config, larger, architecture)


@torch.no_grad()
def _rows(former: Tensor, sources: Sequence[Sequence[int]], seed: int) -> Tensor:
    """Average rows of a tensor: (former tokens, ...) -> (tokens, ...)."""
    table = former.reshape(len(former), -1)
    places = torch.tensor([old for each in sources for old in each])
    starts = torch.tensor([0, *itertools.accumulate(map(len, sources))][:-1])
    rows = functional.embedding_bag(places, table, starts, mode="mean")
    random = torch.tensor([not each for each in sources])
    if random.any():
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn((int(random.sum()), table.shape[1]), generator=generator)
        rows[random] = table.mean(0) + noise * table.std(0)
    return rows.reshape(len(sources), *former.shape[1:])


@torch.no_grad()
def _compare(model: PreTrainedModel, changed: PreTrainedModel, sources: Sequence[Sequence[int]]) -> float:
    """Compare the outputs of two models on a padded batch of tokens that are the same in both."""
    same = torch.tensor([new for new, each in enumerate(sources) if len(each) == 1])
    if not len(same):
        return 0.0
    old = torch.tensor([each[0] if len(each) == 1 else -1 for each in sources])
    batch = padded_batch(changed)
    real, padding = batch["attention_mask"].bool(), changed.config.pad_token_id or 0
    words = same[same != padding] if len(same) > 1 else same
    ids = torch.where(real, words[batch["input_ids"] % len(words)], padding)
    # Padding that ends texts too, as EuroBERT's, has the row of the former end.
    former = torch.where(old[ids] < 0, model.config.pad_token_id or 0, old[ids])
    outputs = _outputs(changed, batch | {"input_ids": ids}, same)
    reference = _outputs(model, batch | {"input_ids": former}, old[same])
    return check_same_outputs("changing the vocabulary", outputs, reference)


def _outputs(model: PreTrainedModel, batch: Mapping[str, Tensor], tokens: Tensor) -> tuple[Tensor, ...]:
    """Return `float_outputs`, logits over the vocabulary of some tokens alone."""
    has_logits = model.get_output_embeddings() is not None
    outputs = float_outputs(model, batch)
    rows = model.config.vocab_size
    return tuple(part[..., tokens] if has_logits and part.shape[-1] == rows else part for part in outputs)
