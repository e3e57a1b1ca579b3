"""Model inputs from a batch: padded sequences, or blocks that pack several texts into one row."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from biosqueeze.models.families import family_of, first_position, takes_token_types
from biosqueeze.models.fast_training.attention import BLOCK_MASK_IMPLEMENTATIONS, additive_mask
from biosqueeze.models.layers import GLOBAL, LOCAL


def model_inputs(model: PreTrainedModel, batch: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the forward arguments of a stock encoder, with or without a head.

    Args:
        model: of any family.
        batch: `input_ids` and `attention_mask` (batch, length), `token_type_ids` where the task has them; of packed
            blocks also `positions` (batch, length), from 0 within each text, and `segments` (batch, length), the
            number of the text within its block, from 1; 0 on padding.

    Raises:
        ValueError: the blocks are packed and the model does not use SDPA, although its family has it: eager attention
            would add the bool mask to the scores.
    """
    family = family_of(model.config)
    inputs: dict[str, Any] = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    if "segments" in batch:
        if family.supports_sdpa and model.config._attn_implementation not in BLOCK_MASK_IMPLEMENTATIONS:
            raise ValueError("packed blocks need a model with SDPA attention")
        # Padding attends to padding: a row without any allowed token would be NaN, and NaN would spread from there.
        inputs["attention_mask"] = _text_mask(model, _same_text(batch["segments"]).unsqueeze(1))
        inputs["position_ids"] = batch["positions"] + first_position(model.config)
    if takes_token_types(model.config) and "token_type_ids" in batch:
        inputs["token_type_ids"] = batch["token_type_ids"]
    return inputs


def _text_mask(model: PreTrainedModel, same_text: Tensor) -> Tensor | dict[str, Tensor]:
    """Return the mask (batch, 1, length, length); by layer type where some layers attend to a window only.

    transformers takes a mask of this shape as it is: it would drop the window, and eager attention adds the mask to the
    scores.
    """
    if not family_of(model.config).supports_sdpa:
        return additive_mask(same_text, torch.float32)
    if LOCAL not in (getattr(model.config, "layer_types", None) or ()):
        return same_text
    near = within_window(same_text.shape[-1], model.config.sliding_window, same_text.device)
    return {GLOBAL: same_text, LOCAL: same_text & near}


def within_window(length: int, window: int, device: torch.device) -> Tensor:
    """Return which pairs of positions are at most a window apart: bool (length, length)."""
    positions = torch.arange(length, device=device)
    return (positions.unsqueeze(1) - positions).abs() <= window


@dataclass(frozen=True)
class TextRows:
    """The texts of a batch, one per row: for packed short texts this leaves far fewer pairs of tokens than blocks."""

    places: Tensor | None  # (texts, longest) indices into the flattened (batch x length); None if nothing is packed
    real: Tensor  # (texts, longest) bool

    @classmethod
    def of(cls, batch: Mapping[str, Tensor]) -> "TextRows":
        """Locate the texts of a batch as in `model_inputs`."""
        if "segments" not in batch:
            return cls(None, batch["attention_mask"].bool())
        real, positions = batch["segments"].flatten() > 0, batch["positions"].flatten()
        number = torch.cumsum(real & (positions == 0), dim=0) - 1  # index of each token's text
        row, column = number[real], positions[real]
        size = (int(row.max()) + 1, int(column.max()) + 1)
        places = torch.zeros(size, dtype=torch.long, device=real.device)
        places[row, column] = torch.nonzero(real).squeeze(1)
        filled = torch.zeros(size, dtype=torch.bool, device=real.device)
        filled[row, column] = True
        return cls(places, filled)

    def rows(self, heads: Tensor) -> Tensor:
        """Gather (batch, heads, length, head size) to (texts, heads, longest, head size); padding is arbitrary."""
        if self.places is None:
            return heads
        return heads.transpose(1, 2).flatten(0, 1)[self.places].transpose(1, 2)

    def squares(self, pairs: Tensor) -> Tensor:
        """Gather (batch, heads, query, key) to (texts, heads, longest, longest); padding is arbitrary."""
        if self.places is None:
            return pairs
        block, place = self.places // pairs.shape[-1], self.places % pairs.shape[-1]  # (texts, longest)
        gathered = pairs.movedim(1, -1)[block.unsqueeze(2), place.unsqueeze(2), place.unsqueeze(1)]
        return gathered.movedim(-1, 1)

    @property
    def allowed(self) -> Tensor:
        """Pairs of real tokens, bool (texts, query, key)."""
        return self.real.unsqueeze(2) & self.real.unsqueeze(1)

    @property
    def pairs(self) -> int:
        """Number of allowed pairs."""
        return int(self.real.sum(dim=1).square().sum())


def _same_text(segments: Tensor) -> Tensor:
    return segments.unsqueeze(2) == segments.unsqueeze(1)
