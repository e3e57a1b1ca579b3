"""From a batch to what a model is called with: padded sequences, or blocks in which several texts lie side by side."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from biosqueeze.models.attention import READ_BLOCKS
from biosqueeze.models.families import family_of


def model_inputs(model: PreTrainedModel, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The arguments of a stock encoder, with or without a head.

    Args:
        model: of any family.
        batch: `input_ids` and `attention_mask` (batch, length), `token_type_ids` where the task has them; of packed
            blocks also `positions` (batch, length), from 0 within each text, and `segments` (batch, length), the
            number of the text within its block from 1, and 0 on padding.

    Raises:
        ValueError: the blocks are packed and the model does not run on SDPA, which alone reads such a mask rightly.
    """
    family = family_of(model.config)
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    if "segments" in batch:
        if model.config._attn_implementation not in READ_BLOCKS:
            raise ValueError("packed blocks need a model that is loaded with SDPA")
        # Padding looks at padding: a row that may look at nothing would be no number, and spread from there.
        inputs["attention_mask"] = _alike(batch["segments"]).unsqueeze(1)  # (batch, 1, length, length)
        inputs["position_ids"] = batch["positions"] + family.first_position
    if family.takes_token_types and "token_type_ids" in batch:
        inputs["token_type_ids"] = batch["token_type_ids"]
    return inputs


@dataclass(frozen=True)
class Texts:
    """The texts of a batch, each in a row of its own: a block of many short ones has far fewer pairs of tokens so."""

    places: Tensor | None  # (texts, longest) into the flattened (batch x length); None where each text has its row
    real: Tensor  # (texts, longest) bool

    @classmethod
    def of(cls, batch: Mapping[str, Tensor]) -> "Texts":
        """Find them; see `model_inputs` for the batch."""
        if "segments" not in batch:
            return cls(None, batch["attention_mask"].bool())
        real, positions = batch["segments"].flatten() > 0, batch["positions"].flatten()
        number = torch.cumsum(real & (positions == 0), dim=0) - 1  # of the text that each token belongs to
        row, column = number[real], positions[real]
        size = (int(row.max()) + 1, int(column.max()) + 1)
        places = torch.zeros(size, dtype=torch.long, device=real.device)
        places[row, column] = torch.nonzero(real).squeeze(1)
        filled = torch.zeros(size, dtype=torch.bool, device=real.device)
        filled[row, column] = True
        return cls(places, filled)

    def rows(self, heads: Tensor) -> Tensor:
        """(batch, heads, length, head size) -> (texts, heads, longest, head size); what is not real is any number."""
        if self.places is None:
            return heads
        return heads.transpose(1, 2).flatten(0, 1)[self.places].transpose(1, 2)

    @property
    def allowed(self) -> Tensor:
        """Which token may look at which, bool (texts, query, key): both real."""
        return self.real.unsqueeze(2) & self.real.unsqueeze(1)

    @property
    def pairs(self) -> int:
        """How many pairs are allowed."""
        return int(self.real.sum(dim=1).square().sum())


def _alike(segments: Tensor) -> Tensor:
    return segments.unsqueeze(2) == segments.unsqueeze(1)
