"""Which layers attend globally and which locally, and how often: what two versions of transformers read.

Version 5 reads the kind of each layer, `layer_types`. Version 4 reads a period, `global_attn_every_n_layers`: layers 0,
n, 2n, ... are global; where it is absent, n is 3.
"""

from collections.abc import Sequence

from transformers import PreTrainedConfig

from biosqueeze.models.layers import LOCAL
from biosqueeze.progress import warn

_PERIOD_KEY = "global_attn_every_n_layers"


def attention_period(types: Sequence[str]) -> int | None:
    """Return the n with which layers 0, n, 2n, ... alone are global; None if no n is that of these layers."""
    is_global = [kind != LOCAL for kind in types]
    periods = range(1, len(is_global) + 1)
    return next((n for n in periods if is_global == [layer % n == 0 for layer in range(len(is_global))]), None)


def set_period(config: PreTrainedConfig) -> None:
    """Set the period of a config's layers; remove the key where they have none."""
    period = attention_period(config.layer_types)
    if period is not None:
        setattr(config, _PERIOD_KEY, period)
    elif hasattr(config, _PERIOD_KEY):
        delattr(config, _PERIOD_KEY)


def warn_irregular(config: PreTrainedConfig, layers: Sequence[int]) -> None:
    """Warn if some layers of a model have no period, and name layers that have one.

    Args:
        config: of the whole model.
        layers: those to keep, from 0.
    """
    types = getattr(config, "layer_types", None)
    if not types or attention_period([types[layer] for layer in layers]):
        return
    regular = nearest_regular(types, layers)
    advice = f"; for version 4 keep --layers {','.join(map(str, regular))}" if regular else ""
    warn(
        f"layers {', '.join(map(str, layers))} keep their global or local attention, but not every n-th is global, as "
        f"transformers 4 expects: only version 5 will load the model correctly{advice}"
    )


def nearest_regular(types: Sequence[str], layers: Sequence[int]) -> tuple[int, ...] | None:
    """Return as many layers with a period: those with the least sum of distances from the given ones, if there are any.

    Args:
        types: kind of each layer of the whole model.
        layers: indices of some of them, ascending.
    """
    is_global = [kind != LOCAL for kind in types]
    periods = range(1, len(layers) + 1)
    wanted = ([place % period == 0 for place in range(len(layers))] for period in periods)
    found = [choice for pattern in wanted if (choice := _nearest(is_global, layers, pattern))]
    return min(found)[1] if found else None


_Choice = tuple[int, tuple[int, ...]]  # sum of distances, and the layers


def _nearest(is_global: Sequence[bool], layers: Sequence[int], wanted: Sequence[bool]) -> _Choice | None:
    """Return the ascending layers of the wanted kinds that are nearest to the given ones; None if there are too few."""
    best: list[_Choice | None] = [(0, ())] * (len(is_global) + 1)  # by the number of layers that may be used
    for place, kind in zip(layers, wanted, strict=True):
        following: list[_Choice | None] = [None]
        for layer, layer_is_global in enumerate(is_global):
            before, choices = best[layer], [following[layer]]
            if before and layer_is_global == kind:
                choices.append((before[0] + abs(layer - place), (*before[1], layer)))
            following.append(min(filter(None, choices), default=None))
        best = following
    return best[-1]
