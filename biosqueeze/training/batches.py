"""Which items are in which batch: shuffled by seed and epoch, bucketed by length, a pure function of the position.

Nothing here keeps state. A run that resumes at step n therefore gets exactly the batches of an uninterrupted run, and
processes that train together need not exchange their shares: each computes its part of the same batches.
"""

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import ceil
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from biosqueeze.data.collate import Features, pad
from biosqueeze.errors import SqueezeError
from biosqueeze.models.device import own_device

Batch = dict[str, Tensor]

Position = tuple[int, int]  # (epoch, item)

# Batches whose items are sorted by length together: enough to save padding, few enough to stay random.
BUCKET_BATCHES = 50
# Batches that each worker prepares ahead.
PREFETCHED = 4


class ItemSource(Protocol):
    """Training data: items with lengths, drawn per epoch and turned into features with a given generator."""

    @property
    def pad_token_id(self) -> int:
        """Return the id that fills input_ids after the end of a sequence."""

    def draw(self, epoch: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the items of one epoch in any order, equally many in each epoch."""

    def length(self, items: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the lengths of these items in tokens, (items,)."""

    def features(self, item: int, rng: np.random.Generator) -> Features:
        """Return the model inputs of one item; all randomness (masking) is drawn from rng."""


@runtime_checkable
class ChangingSource(Protocol):
    """Training data whose features change during the training, such as those with a climbing mask rate."""

    def at(self, done: float) -> ItemSource:
        """Return the data after a share of the training, from 0 to 1; items and lengths never change."""


@dataclass(frozen=True)
class BatchSchedule:
    """The batches of a whole run, from micro-batch `start` to `total`; iterates over lists of positions.

    Several processes share each batch of `processes * batch_size` items. The last batch of an epoch may have fewer
    items than there are processes: then some processes get an empty list.
    """

    source: ItemSource
    batch_size: int  # of one process
    seed: int
    total: int
    start: int = 0
    process: int = 0
    processes: int = 1
    maskings: int | None = None  # epochs after which the random features of an item repeat; None: they never do
    done_from: float = 0.0  # share of the whole training that is done before the first micro-batch; see ChangingSource
    done_to: float = 1.0  # share that is done after the last

    def __len__(self) -> int:
        """Return the number of micro-batches that are left."""
        return self.total - self.start

    def __iter__(self) -> Iterator[list[Position]]:
        """Yield one list of (epoch, item) for each micro-batch."""
        epoch, position = divmod(self.start, self.batches_per_epoch)
        left = len(self)
        while left > 0:
            for batch in self._epoch(epoch)[position : position + left]:
                yield [(epoch, int(item)) for item in batch[self.process :: self.processes]]
                left -= 1
            epoch, position = epoch + 1, 0

    @property
    def batches_per_epoch(self) -> int:
        """Return the number of micro-batches in one pass over the data."""
        return ceil(len(self.draw(0)) / self._global_batch_size)

    @property
    def _global_batch_size(self) -> int:
        return self.batch_size * self.processes

    @property
    def mean_tokens(self) -> float:
        """Return the tokens of a full batch of all processes, on average."""
        return float(self.source.length(self.draw(0)).mean()) * self._global_batch_size

    def longest_positions(self) -> list[Position]:
        """Return the longest items of the first epoch, as many as one process gets at once."""
        items = self.draw(0)
        order = np.argsort(-self.source.length(items), kind="stable")[: self.batch_size]
        return [(0, int(item)) for item in items[order]]

    def first_position(self) -> Position:
        """Return an item of the first epoch, the same in every process."""
        return 0, int(self.draw(0)[0])

    def draw(self, epoch: int) -> NDArray[np.int64]:
        """Return the items of an epoch, in any order."""
        return self.source.draw(epoch, self._rng(epoch))

    def _rng(self, epoch: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, epoch])

    def _epoch(self, epoch: int) -> list[NDArray[np.int64]]:
        rng = self._rng(epoch)
        items = rng.permutation(self.source.draw(epoch, rng))
        size = self._global_batch_size
        bucket_size = size * BUCKET_BATCHES
        batches: list[NDArray[np.int64]] = []
        for start in range(0, len(items), bucket_size):
            bucket = items[start : start + bucket_size]
            bucket = bucket[np.argsort(self.source.length(bucket), kind="stable")]
            batches += [bucket[i : i + size] for i in range(0, len(bucket), size)]
        return [batches[i] for i in rng.permutation(len(batches))]


class _ItemDataset(Dataset[Features]):
    """The features at a position, when a share of the training is done."""

    def __init__(self, schedule: BatchSchedule) -> None:
        self.source, self.seed, self.maskings = schedule.source, schedule.seed, schedule.maskings
        self.changing = schedule.source if isinstance(schedule.source, ChangingSource) else None

    def __getitem__(self, key: tuple[Position, float]) -> Features:
        (epoch, item), done = key
        source = self.changing.at(done) if self.changing else self.source
        masking = epoch % self.maskings if self.maskings else epoch
        return source.features(item, np.random.default_rng([self.seed, 1 + masking, item]))


@dataclass(frozen=True)
class _DatedPositions:
    """Lists of positions, each with the share of the training that precedes its micro-batch."""

    schedule: BatchSchedule
    positions: Iterable[list[Position]]

    def __iter__(self) -> Iterator[list[tuple[Position, float]]]:
        first, last = self.schedule.done_from, self.schedule.done_to
        for number, batch in enumerate(self.positions, start=self.schedule.start):
            done = first + (last - first) * number / max(1, self.schedule.total)
            yield [(position, done) for position in batch]


def _collate(pad_token_id: int, features: list[Features]) -> Batch:
    if not features:
        return {}
    return {name: torch.from_numpy(array) for name, array in pad(features, pad_token_id).items()}


@contextmanager
def explained_workers() -> Iterator[None]:
    """Explain the errors of processes that prepare batches; of a killed one torch raises its error at any moment.

    Raises:
        SqueezeError: one was killed, or has raised this error itself.
    """
    try:
        yield
    except SqueezeError as error:
        if "in DataLoader worker process" not in str(error):
            raise
        message = str(error).strip().splitlines()[-1].partition(": ")[2]  # the last line of the worker's traceback
        raise type(error)(message) from error
    except RuntimeError as error:
        if "DataLoader worker (pid" not in str(error):
            raise
        raise SqueezeError(
            "a process of --workers was killed, perhaps for lack of memory, or of shared memory; give fewer --workers, "
            "or 0"
        ) from error


def _ignore_interrupts(_worker: int) -> None:
    """Keep a worker from acting on the terminal's Ctrl-C: the parent ends its step and stops the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def single_item_batch(schedule: BatchSchedule) -> Batch:
    """Return a batch of a single item, the same in every process."""
    return _batch(schedule, [schedule.first_position()])


def longest_batch(schedule: BatchSchedule) -> Batch:
    """Return the batch of the first epoch that takes the most memory, as it is at the end of the training."""
    return _batch(schedule, schedule.longest_positions(), schedule.done_to)


def _batch(schedule: BatchSchedule, positions: list[Position], done: float = 0.0) -> Batch:
    items = _ItemDataset(schedule)
    return _collate(schedule.source.pad_token_id, [items[position, done] for position in positions])


def group_batches(batches: Iterable[Batch], size: int) -> Iterator[list[Batch]]:
    """Yield the batches in lists of `size`; the last list may be shorter."""
    stream = iter(batches)
    while group := list(islice(stream, size)):
        yield group


def loader(
    schedule: BatchSchedule, workers: int, positions: Iterable[list[Position]] | None = None
) -> "DataLoader[Features]":
    """Return a DataLoader of padded tensors, (batch, length) each; an empty list of positions gives {}.

    Args:
        schedule: the items of each batch, and the source of their features.
        workers: processes that prepare batches ahead; 0 does it in the main process.
        positions: lists of positions to load in place of the schedule's.
    """
    return DataLoader(
        _ItemDataset(schedule),
        batch_sampler=_DatedPositions(schedule, schedule if positions is None else positions),
        collate_fn=partial(_collate, schedule.source.pad_token_id),
        num_workers=workers,
        prefetch_factor=PREFETCHED if workers else None,
        worker_init_fn=_ignore_interrupts,
        pin_memory=own_device().type == "cuda",
        # With its own generator, the loader draws nothing from the global one, which dropout uses.
        generator=torch.Generator().manual_seed(schedule.seed),
    )
