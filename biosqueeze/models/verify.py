"""Comparing a model with its reference on a padded batch, after every surgery."""

from collections.abc import Mapping

import torch
from torch import Tensor
from transformers import PreTrainedModel

from biosqueeze.errors import SqueezeError
from biosqueeze.models.families import family_of

TOLERANCE = 1e-4
"""Largest difference that is taken for rounding, in logits and hidden states of float32."""

_ROWS, _LENGTH = 4, 16


def padded_batch(model: PreTrainedModel) -> dict[str, Tensor]:
    """Random ids, each row shorter than the one before and padded: int64, (4, 16)."""
    config = model.config
    length = min(_LENGTH, config.max_position_embeddings - family_of(config).first_position)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, config.vocab_size, (_ROWS, length), generator=generator)
    lengths = torch.tensor([max(1, length - row * length // _ROWS) for row in range(_ROWS)])
    mask = (torch.arange(length)[None] < lengths[:, None]).long()  # (batch, length)
    padding = config.pad_token_id or 0
    # A pad token among the real ones would shift RoBERTa's positions.
    ids = torch.where(ids == padding, (padding + 1) % config.vocab_size, ids)
    return {"input_ids": ids.masked_fill(mask == 0, padding), "attention_mask": mask}


@torch.no_grad()
def last_hidden(model: PreTrainedModel, batch: Mapping[str, Tensor]) -> Tensor:
    """Last hidden states of the trunk: (batch, length, hidden)."""
    states: tuple[Tensor, ...] = model(**batch, output_hidden_states=True).hidden_states
    return states[-1]


@torch.no_grad()
def outputs(model: PreTrainedModel, batch: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """Every float tensor that the model returns, last hidden states and logits alike."""
    returned = model(**batch, output_hidden_states=True)
    flat = [part for value in returned.values() for part in (value if isinstance(value, tuple) else (value,))]
    return tuple(part for part in flat if part is not None and part.is_floating_point())


def largest_difference(found: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> float:
    """Largest absolute difference over all pairs of tensors; infinite where shapes or counts differ."""
    if [t.shape for t in found] != [t.shape for t in wanted]:
        return float("inf")
    return max(float((a - b).abs().max()) for a, b in zip(found, wanted, strict=True))


def ensure_same(what: str, found: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> float:
    """The largest difference between a model's outputs and its reference's.

    Raises:
        SqueezeError: it is over `TOLERANCE`, or no number.
    """
    difference = largest_difference(found, wanted)
    if not difference <= TOLERANCE:
        raise SqueezeError(
            f"{what} changes the outputs by {difference:.3g}, where at most {TOLERANCE:g} can be rounding: the result "
            "was thrown away; please report this with the checkpoint's name"
        )
    return difference
