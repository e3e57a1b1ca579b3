"""Reduce the depth: choose layers, and build a shallower stock model from them."""

import copy
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from biosqueeze.errors import UsageError
from biosqueeze.models.attention_pattern import set_period, warn_irregular
from biosqueeze.models.cuts.first_norm import with_first_layer
from biosqueeze.models.families import family_of
from biosqueeze.models.loading.load import new_model
from biosqueeze.models.longformer import keep_windows
from biosqueeze.models.verify import check_same_outputs, float_outputs, padded_batch

_HALVES = "every-other, odd, top, bottom"
_WHOLE = re.compile("-?[0-9]{1,9}")


def parse_layers(text: str, total: int) -> tuple[int, ...]:
    """Return the layers to keep, counted from 0, in ascending order.

    Args:
        text: a number of layers, spread evenly from the first to the last (`6`); a list (`0,2,4`; `5,` is layer 5
            alone); `every-other` (0, 2, ...), `odd` (1, 3, ...), `top` or `bottom` (the upper or lower half).
        total: number of layers of the model.

    Raises:
        UsageError: the text is none of these, a layer does not exist, or the list is not ascending.
    """
    half = max(1, total // 2)
    named = {
        "every-other": range(0, total, 2),
        "odd": range(1, total, 2) if total > 1 else range(1),
        "top": range(total - half, total),
        "bottom": range(half),
    }
    if text in named:
        return tuple(named[text])
    words = [word for word in text.split(",") if word.strip()]
    numbers = [number for word in words if (number := whole_number(word)) is not None]
    if not words or len(numbers) < len(words):
        raise UsageError(f"--layers {text!r} is neither a number, nor a list like 0,2,4, nor one of {_HALVES}")
    return _listed(numbers, total) if "," in text else _spread(numbers[0], total)


def whole_number(text: str) -> int | None:
    """Return the number that --layers is, and not a list or a name; None otherwise."""
    return int(text) if _WHOLE.fullmatch(text.strip()) else None


def parse_layers_of(config: PreTrainedConfig, text: str) -> tuple[int, ...]:
    """Return `parse_layers` for a model. ALBERT runs one layer repeatedly, so only the number can be chosen.

    Raises:
        UsageError: as in `parse_layers`; or layers of an ALBERT are listed, or it has several groups of layers.
    """
    chosen = parse_layers(text, config.num_hidden_layers)
    if not family_of(config).shares_layers:
        return chosen
    if config.num_hidden_groups > 1:
        raise UsageError(
            "--layers does not support an ALBERT with several groups of layers: other layers would run at each depth"
        )
    if whole_number(text) is None:
        raise UsageError(
            f"all layers of an ALBERT share their weights, so --layers takes only a number; give {len(chosen)}"
        )
    return tuple(range(len(chosen)))


def _spread(count: int, total: int) -> tuple[int, ...]:
    if not 1 <= count <= total:
        raise UsageError(f"--layers {count} of {total} cannot be kept; give a number from 1 to {total}")
    if count == 1:
        return (0,)
    return tuple(round(i * (total - 1) / (count - 1)) for i in range(count))


def _listed(numbers: Sequence[int], total: int) -> tuple[int, ...]:
    outside = [n for n in numbers if not 0 <= n < total]
    if outside:
        raise UsageError(f"--layers: there is no layer {outside[0]}; the model has layers 0 to {total - 1}")
    ascending = sorted(set(numbers))
    if len(ascending) == 1 < len(numbers):
        raise UsageError(
            f"--layers lists layer {numbers[0]} more than once; give {numbers[0]}, (with the comma) for this layer "
            "alone, or how many layers to keep, such as 2"
        )
    if list(numbers) != ascending:
        expected = ",".join(map(str, ascending))
        raise UsageError(f"--layers must list each layer once, in ascending order; did you mean {expected}?")
    return tuple(numbers)


def shallow_config(config: PreTrainedConfig, layers: Sequence[int]) -> PreTrainedConfig:
    """Return the config of some layers; each keeps its kind of attention, global or local."""
    changed = copy.deepcopy(config)
    setattr(changed, family_of(config).layers_key, len(layers))
    keep_windows(changed, layers)
    types = getattr(config, "layer_types", None)
    if types:
        changed.layer_types = [types[layer] for layer in layers]
        set_period(changed)
    return changed


def keep_layers(model: PreTrainedModel, layers: Sequence[int]) -> tuple[PreTrainedModel, float]:
    """Build a stock model from some of a model's layers, with its embeddings and head.

    Returns:
        The new model in eval mode, and its largest difference on a padded batch from the old model run without the
        dropped layers.

    Raises:
        SqueezeError: that difference is more than rounding.
    """
    family = family_of(model.config)
    config = shallow_config(model.config, layers)
    warn_irregular(model.config, layers)
    model = with_first_layer(model, layers[0])
    shallow = new_model(config, type(model).__name__, seed=None)
    if family.shares_layers:
        return shallow, _share_weights(model, shallow)
    renumbered = {f"{family.layers}.{old}.": f"{family.layers}.{new}." for new, old in enumerate(layers)}
    shallow.load_state_dict(_renamed(model, family.layers, renumbered), strict=True)
    batch = padded_batch(model)
    float_outputs(model, batch)  # transformers hooks the layers that it finds in the first run: all have to be there
    with _only_layers(model.base_model, family.layers, layers):
        reference = float_outputs(model, batch)
    return shallow, check_same_outputs(f"keeping layers {list(layers)}", float_outputs(shallow, batch), reference)


@torch.no_grad()
def _share_weights(model: PreTrainedModel, shallow: PreTrainedModel) -> float:
    """Copy the weights of an ALBERT to one with fewer layers; return the largest difference at equal depths."""
    shallow.load_state_dict(model.state_dict(), strict=True)
    batch = padded_batch(model)
    states: tuple[Tensor, ...]
    states, reference = (m(**batch, output_hidden_states=True).hidden_states for m in (shallow, model))
    return check_same_outputs("running fewer layers", states, reference[: len(states)])


def _renamed(model: PreTrainedModel, path: str, renumbered: dict[str, str]) -> dict[str, object]:
    state = {}
    for name, tensor in model.state_dict().items():
        place = name.find(f"{path}.")
        old = f"{path}.{name[place:].removeprefix(path + '.').split('.')[0]}." if place >= 0 else ""
        if not old:
            state[name] = tensor
        elif old in renumbered:
            state[name.replace(old, renumbered[old], 1)] = tensor
    return state


@contextmanager
def _only_layers(trunk: nn.Module, path: str, layers: Sequence[int]) -> Iterator[None]:
    """Remove the other layers from the trunk inside the block."""
    parent_path, _, attribute = path.rpartition(".")
    parent = trunk.get_submodule(parent_path)
    all_layers = getattr(parent, attribute)
    setattr(parent, attribute, nn.ModuleList(all_layers[i] for i in layers))
    try:
        yield
    finally:
        setattr(parent, attribute, all_layers)
