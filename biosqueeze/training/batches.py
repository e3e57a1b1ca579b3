"""Which items come in which batch: shuffled by seed and epoch, bucketed by length, a pure function of the position.

Nothing here has a state, so a run that resumes at step n sees exactly the batches that an uninterrupted one sees, and
processes that train together need not speak about their shares: each takes its part of the same batches.
"""

import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import ceil
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from biosqueeze.data.collate import Features, pad

__all__ = [
    "Batch",
    "BatchSchedule",
    "Features",
    "ItemSource",
    "Position",
    "group_batches",
    "loader",
    "longest_batch",
    "single_item_batch",
]

Batch = dict[str, Tensor]

Position = tuple[int, int]  # (epoch, item)

# Batches among which items of like length are brought together: enough to save padding, few enough to stay random.
BUCKET_BATCHES = 50
# Batches that each worker prepares ahead.
PREFETCHED = 4


class ItemSource(Protocol):
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
class BatchSchedule:
    """The batches of a whole run, from micro-batch `start` to `total`; iterates over lists of positions.

    Several processes share each batch of `processes * batch_size` items. The last one of an epoch may have fewer than
    there are processes: then some get an empty list.
    """

    source: ItemSource
    batch_size: int  # of one process
    seed: int
    total: int
    start: int = 0
    process: int = 0
    processes: int = 1
    maskings: int | None = None  # an item's features come back after so many epochs; None is never

    def __len__(self) -> int:
        """Micro-batches that are left."""
        return self.total - self.start

    def __iter__(self) -> Iterator[list[Position]]:
        """Lists of (epoch, item)."""
        epoch, position = divmod(self.start, self.batches_per_epoch)
        left = len(self)
        while left > 0:
            for batch in self._epoch(epoch)[position : position + left]:
                yield [(epoch, int(item)) for item in batch[self.process :: self.processes]]
                left -= 1
            epoch, position = epoch + 1, 0

    @property
    def batches_per_epoch(self) -> int:
        """Micro-batches in one pass over the data."""
        return ceil(len(self.draw(0)) / self._together)

    @property
    def _together(self) -> int:
        """Items of one batch, over all processes."""
        return self.batch_size * self.processes

    def longest_positions(self) -> list[Position]:
        """The longest items of the first epoch, as many as one process gets at once."""
        items = self.draw(0)
        order = np.argsort(-self.source.length(items), kind="stable")[: self.batch_size]
        return [(0, int(item)) for item in items[order]]

    def first_position(self) -> Position:
        """An item of the first epoch, the same in every process."""
        return 0, int(self.draw(0)[0])

    def draw(self, epoch: int) -> NDArray[np.int64]:
        """The items of an epoch, in any order."""
        return self.source.draw(epoch, self._rng(epoch))

    def _rng(self, epoch: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, epoch])

    def _epoch(self, epoch: int) -> list[NDArray[np.int64]]:
        rng = self._rng(epoch)
        items = rng.permutation(self.source.draw(epoch, rng))
        bucket = self._together * BUCKET_BATCHES
        batches: list[NDArray[np.int64]] = []
        for start in range(0, len(items), bucket):
            part = items[start : start + bucket]
            part = part[np.argsort(self.source.length(part), kind="stable")]
            batches += [part[i : i + self._together] for i in range(0, len(part), self._together)]
        return [batches[i] for i in rng.permutation(len(batches))]


class _Items(Dataset[Features]):
    def __init__(self, schedule: BatchSchedule) -> None:
        self.source, self.seed, self.maskings = schedule.source, schedule.seed, schedule.maskings

    def __getitem__(self, position: Position) -> Features:
        epoch, item = position
        masking = epoch % self.maskings if self.maskings else epoch
        return self.source.features(item, np.random.default_rng([self.seed, 1 + masking, item]))


def _collate(pad_token_id: int, features: list[Features]) -> Batch:
    if not features:
        return {}
    return {name: torch.from_numpy(array) for name, array in pad(features, pad_token_id).items()}


def _leave_signals_to_the_parent(_worker: int) -> None:
    """A worker must not act on the terminal's Ctrl-C: the training ends its step and stops the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def single_item_batch(schedule: BatchSchedule) -> Batch:
    """A batch of a single item."""
    return _batch(schedule, [schedule.first_position()])


def longest_batch(schedule: BatchSchedule) -> Batch:
    """The batch of the first epoch that takes the most memory."""
    return _batch(schedule, schedule.longest_positions())


def _batch(schedule: BatchSchedule, positions: list[Position]) -> Batch:
    items = _Items(schedule)
    return _collate(schedule.source.pad_token_id, [items[position] for position in positions])


def group_batches(batches: Iterable[Batch], size: int) -> Iterator[list[Batch]]:
    """The batches in lists of that size."""
    stream = iter(batches)
    while together := list(islice(stream, size)):
        yield together


def loader(
    schedule: BatchSchedule, workers: int, positions: Iterable[list[Position]] | None = None
) -> "DataLoader[Features]":
    """A DataLoader over the schedule that yields padded tensors, (batch, length) each; {} for an empty share.

    Args:
        schedule: says which items come, and how each looks.
        workers: processes that make batches ahead.
        positions: batches to give instead of the schedule's own.
    """
    return DataLoader(
        _Items(schedule),
        batch_sampler=schedule if positions is None else positions,
        collate_fn=partial(_collate, schedule.source.pad_token_id),
        num_workers=workers,
        prefetch_factor=PREFETCHED if workers else None,
        worker_init_fn=_leave_signals_to_the_parent,
        pin_memory=torch.cuda.is_available(),
        # A generator of its own, so that starting the loader draws nothing from the generator that dropout uses.
        generator=torch.Generator().manual_seed(schedule.seed),
    )
