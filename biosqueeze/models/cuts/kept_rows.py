"""Which outputs of the modules of a layer are left after a cut."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from biosqueeze.models.cuts.unit_scores import KeptUnits
from biosqueeze.models.families import family_of
from biosqueeze.models.layers import attention_sizes, query_group


def kept_rows(config: PreTrainedConfig, kept: KeptUnits, layer: int, path: str) -> Tensor | None:
    """Return the outputs of a module that a narrower model has: ascending indices, None for all.

    Args:
        config: the original's.
        kept: the units of the narrower model.
        layer: its number.
        path: of the module in the layer, as in `Family`; any other than a projection or the FFN's input, such as a
            norm, has the outputs of the residual stream.
    """
    family = family_of(config)
    heads, size = attention_sizes(config)
    group = query_group(config)
    if path in (family.query, family.key, family.value):
        width, parts = size * group if path == family.query else size, 3 if family.fuses_projections else 1
        return _blocks(None if kept.heads is None else kept.heads[layer], width, parts=parts, of=heads * size)
    if path in (family.ffn_input, family.ffn_gate):
        neurons, parts = int(getattr(config, family.ffn_key)), 2 if family.fuses_gate else 1
        return _blocks(None if kept.neurons is None else kept.neurons[layer], 1, parts=parts, of=neurons)
    return None if kept.hidden is None else torch.tensor(kept.hidden)


def _blocks(units: Sequence[int] | None, size: int, *, parts: int, of: int) -> Tensor | None:
    """Return the rows of units of a size, in each of some parts that have `of` rows each."""
    if units is None:
        return None
    first = torch.tensor(units)[:, None] * size + torch.arange(size)
    return torch.cat([first.flatten() + part * of for part in range(parts)])
