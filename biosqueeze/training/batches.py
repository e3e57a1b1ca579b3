"""Which items come in which batch: shuffled by seed and epoch, bucketed by length, a pure function of the position.

Nothing here has a state, so a run that resumes at step n sees exactly the batches that an uninterrupted one sees.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from biosqueeze.data.collate import Features, pad

__all__ = ["Features", "Position", "Schedule", "Source", "loader"]

Position = tuple[int, int]  # (epoch, item)

# Batches among which items of like length are brought together: enough to save padding, few enough to stay random.
BUCKET_BATCHES = 50


class Source(Protocol):
    """Training data: items with lengths, drawn per epoch, made into features with a generator of their own."""

    @property
    def pad_token_id(self) -> int:
        """Fills input_ids."""

    def draw(self, epoch: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """The items of one epoch in any order, equally many each epoch."""

    def length(self, items: NDArray[np.int64]) -> NDArray[np.int64]:
        """The lengths in tokens of these items."""

    def features(self, item: int, rng: np.random.Generator) -> Features:
        """The model's input for one item; all randomness (masking) comes from rng."""


@dataclass(frozen=True)
class Schedule:
    """The batches of a whole run, from micro-batch `start` to `total`; iterates over lists of positions."""

    source: Source
    batch_size: int
    seed: int
    total: int
    start: int = 0
    drop_last: bool = False  # read by Accelerate

    def __len__(self) -> int:
        """Micro-batches that are left."""
        return self.total - self.start

    def __iter__(self) -> Iterator[list[Position]]:
        """Lists of (epoch, item)."""
        epoch, position = divmod(self.start, self.batches_per_epoch)
        left = len(self)
        while left > 0:
            for batch in self._epoch(epoch)[position : position + left]:
                yield [(epoch, int(item)) for item in batch]
                left -= 1
            epoch, position = epoch + 1, 0

    @property
    def batches_per_epoch(self) -> int:
        """Micro-batches in one pass over the data."""
        return ceil(len(self.source.draw(0, self._rng(0))) / self.batch_size)

    def _rng(self, epoch: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, epoch])

    def _epoch(self, epoch: int) -> list[NDArray[np.int64]]:
        rng = self._rng(epoch)
        items = rng.permutation(self.source.draw(epoch, rng))
        bucket = self.batch_size * BUCKET_BATCHES
        batches: list[NDArray[np.int64]] = []
        for start in range(0, len(items), bucket):
            part = items[start : start + bucket]
            part = part[np.argsort(self.source.length(part), kind="stable")]
            batches += [part[i : i + self.batch_size] for i in range(0, len(part), self.batch_size)]
        return [batches[i] for i in rng.permutation(len(batches))]


class _Items(Dataset[Features]):
    def __init__(self, source: Source, seed: int) -> None:
        self.source, self.seed = source, seed

    def __getitem__(self, position: Position) -> Features:
        epoch, item = position
        return self.source.features(item, np.random.default_rng([self.seed, 1 + epoch, item]))


def _collate(pad_token_id: int, features: list[Features]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array) for name, array in pad(features, pad_token_id).items()}


def loader(schedule: Schedule, workers: int) -> "DataLoader[Features]":
    """A DataLoader over the schedule that yields padded int64 tensors, (batch, length) each."""
    return DataLoader(
        _Items(schedule.source, schedule.seed),
        batch_sampler=schedule,
        collate_fn=partial(_collate, schedule.source.pad_token_id),
        num_workers=workers,
        # A generator of its own, so that starting the loader draws nothing from the generator that dropout uses.
        generator=torch.Generator().manual_seed(schedule.seed),
    )
