"""Fewer layers: which ones stay, and a shallower stock model made of them."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from biosqueeze.errors import UsageError
from biosqueeze.models.families import family_of
from biosqueeze.models.load import new_model
from biosqueeze.models.verify import ensure_same, outputs, padded_batch

_HALVES = "every-other, odd, top, bottom"


def choose_layers(text: str, total: int) -> tuple[int, ...]:
    """The layers to keep, counted from 0, in rising order.

    Args:
        text: how many, spread evenly from the first to the last (`6`); which (`0,2,4`; `5,` is layer 5 alone);
            `every-other` (0, 2, ...), `odd` (1, 3, ...), `top` or `bottom` (the upper or lower half).
        total: how many there are.

    Raises:
        UsageError: it reads as none of these, a layer does not exist, or the list does not rise.
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
    try:
        numbers = [int(word) for word in text.split(",") if word.strip()]
    except ValueError:
        numbers = []
    if not numbers:
        raise UsageError(f"--layers {text!r} is neither a number, nor a list like 0,2,4, nor one of {_HALVES}")
    return _listed(numbers, total) if "," in text else _spread(numbers[0], total)


def choose_layers_of(config: PreTrainedConfig, text: str) -> tuple[int, ...]:
    """`choose_layers` among those of a model. Of an ALBERT, which runs one layer again and again, only how many.

    Raises:
        UsageError: as there; or an ALBERT's layers are named, or are of several groups.
    """
    chosen = choose_layers(text, config.num_hidden_layers)
    if not family_of(config).shares_layers:
        return chosen
    if config.num_hidden_groups > 1:
        raise UsageError("the layers of an ALBERT with several groups change with their number, so --layers is refused")
    if not text.strip().isdigit():
        raise UsageError(f"an ALBERT's layers are all the same, so --layers only says how many; give {len(chosen)}")
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
        raise UsageError(f"--layers: there is no layer {outside[0]}; the model's are 0 to {total - 1}")
    rising = sorted(set(numbers))
    if list(numbers) != rising:
        wanted = ",".join(map(str, rising))
        raise UsageError(f"--layers must name each layer once and in the order they run; did you mean {wanted}?")
    return tuple(numbers)


def keep_layers(model: PreTrainedModel, layers: Sequence[int]) -> tuple[PreTrainedModel, float]:
    """A stock model of some of a model's layers; embeddings and head are copied with them.

    Returns:
        The new model in eval mode, and its largest difference on a padded batch from the old one run without the
        dropped layers.

    Raises:
        SqueezeError: that difference is more than rounding.
    """
    family = family_of(model.config)
    config = copy.deepcopy(model.config)
    setattr(config, family.layers_key, len(layers))
    shallow = new_model(config, type(model).__name__, seed=0)
    if family.shares_layers:
        return shallow, _run_less_often(model, shallow)
    renumbered = {f"{family.layers}.{old}.": f"{family.layers}.{new}." for new, old in enumerate(layers)}
    shallow.load_state_dict(_renamed(model, family.layers, renumbered), strict=True)
    batch = padded_batch(model)
    with _only(model.base_model, family.layers, layers):
        wanted = outputs(model, batch)
    return shallow, ensure_same(f"keeping layers {list(layers)}", outputs(shallow, batch), wanted)


@torch.no_grad()
def _run_less_often(model: PreTrainedModel, shallow: PreTrainedModel) -> float:
    """Fill a model that runs the same weights fewer times; the largest difference of hidden states at equal depths."""
    shallow.load_state_dict(model.state_dict(), strict=True)
    batch = padded_batch(model)
    found: tuple[Tensor, ...]
    found, wanted = (m(**batch, output_hidden_states=True).hidden_states for m in (shallow, model))
    return ensure_same("running fewer layers", found, wanted[: len(found)])


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
def _only(trunk: nn.Module, path: str, layers: Sequence[int]) -> Iterator[None]:
    """Run the trunk with some of its layers only."""
    parent_path, _, attribute = path.rpartition(".")
    parent = trunk.get_submodule(parent_path)
    every = getattr(parent, attribute)
    setattr(parent, attribute, nn.ModuleList(every[i] for i in layers))
    try:
        yield
    finally:
        setattr(parent, attribute, every)
