"""Calibration data of a few random sequences, for any pico model."""

import pytest
import torch
from torch.nn import functional

from biosqueeze.backends.torch import input_names
from biosqueeze.importance.calibration import Calibration
from tests import pico


def token_loss(logits, batch):
    return functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum", ignore_index=-100)


def labelled_batch(model, seed):
    batch = pico.padded_batch(model, rows=3, length=13, seed=seed)
    labels = torch.randint(0, 3, batch["input_ids"].shape, generator=torch.Generator().manual_seed(seed))
    return {**batch, "labels": labels.masked_fill(batch["attention_mask"] == 0, -100)}


@pytest.fixture
def calibrated():
    """From a family to its pico tagger and calibration data."""

    def build(family, head="token-classification"):
        model = pico.model_of(family, 200, head)
        batches = [labelled_batch(model, seed) for seed in range(2)]
        return model, Calibration(batches, input_names(model), token_loss)

    return build
