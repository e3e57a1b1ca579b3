"""From a batch to what a model is called with: padded sequences, or blocks in which several texts lie side by side."""

from collections.abc import Mapping

import torch
from torch import Tensor
from transformers import PreTrainedModel

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
        if model.config._attn_implementation != "sdpa":
            raise ValueError("packed blocks need a model that is loaded with SDPA")
        # Padding looks at padding: a row that may look at nothing would be no number, and spread from there.
        inputs["attention_mask"] = _alike(batch["segments"]).unsqueeze(1)  # (batch, 1, length, length)
        inputs["position_ids"] = batch["positions"] + family.first_position
    if family.takes_token_types and "token_type_ids" in batch:
        inputs["token_type_ids"] = batch["token_type_ids"]
    return inputs


def allowed_pairs(batch: Mapping[str, Tensor]) -> Tensor:
    """Which token may look at which, bool (batch, query, key): both real, and of one text."""
    segments = batch.get("segments", batch["attention_mask"])
    real = segments > 0
    return _alike(segments) & real.unsqueeze(2)


def count_pairs(batch: Mapping[str, Tensor]) -> int:
    """How many pairs `allowed_pairs` holds."""
    return int(torch.count_nonzero(allowed_pairs(batch)))


def _alike(segments: Tensor) -> Tensor:
    return segments.unsqueeze(2) == segments.unsqueeze(1)
