"""The training data of the stages: labelled windows, unlabelled blocks, both mixed, and masked blocks."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.blocks import Blocks
from biosqueeze.data.masking import IGNORED, mask
from biosqueeze.training.batches import Features

Ids = NDArray[np.int64]

_FOR_DECODING = ("words",)  # no model reads these


@dataclass(frozen=True)
class Masked:
    """Blocks of text for masked language modelling, masked anew in every epoch."""

    blocks: Blocks
    pad_token_id: int
    mask_token_id: int
    special_ids: tuple[int, ...]
    vocabulary: int
    rate: float

    def draw(self, epoch: int, rng: np.random.Generator) -> Ids:
        """All blocks."""
        del epoch, rng
        return np.arange(len(self.blocks))

    def length(self, items: Ids) -> Ids:
        """Tokens with the special ones."""
        return self.blocks.lengths[items]

    def features(self, item: int, rng: np.random.Generator) -> Features:
        """Masked input_ids (length,) and labels (length,): the true id where masked, -100 elsewhere."""
        ids, labels = mask(
            self.blocks[item], self.special_ids, self.vocabulary, self.mask_token_id, rng, rate=self.rate
        )
        return {"input_ids": ids, "labels": labels}


@dataclass(frozen=True)
class Mixture:
    """Labelled items, and for each of them `ratio` unlabelled blocks, drawn afresh in every epoch."""

    labelled: Sequence[Features]
    unlabelled: Blocks | None
    ratio: float
    pad_token_id: int

    def draw(self, epoch: int, rng: np.random.Generator) -> Ids:
        """All labelled items and a sample of the unlabelled ones; only unlabelled ones where no item is labelled."""
        del epoch
        known = np.arange(len(self.labelled))
        if self.unlabelled is None:
            return known
        available = len(self.unlabelled)
        wanted = round(self.ratio * len(known)) if len(known) else available
        # With replacement only where the corpus is smaller than what is asked of it.
        sample = rng.choice(available, size=wanted, replace=wanted > available)
        return np.concatenate([known, len(known) + sample])

    def length(self, items: Ids) -> Ids:
        """Tokens with the special ones."""
        return self._lengths[items]

    @cached_property
    def _lengths(self) -> Ids:
        known = np.array([len(item["input_ids"]) for item in self.labelled], dtype=np.int64)
        return known if self.unlabelled is None else np.concatenate([known, self.unlabelled.lengths])

    def features(self, item: int, rng: np.random.Generator) -> Features:
        """What a model reads and the truth; unlabelled text has input_ids (length,) and labels (length,), all -100."""
        del rng
        if item < len(self.labelled):
            return {key: value for key, value in self.labelled[item].items() if key not in _FOR_DECODING}
        if self.unlabelled is None:
            raise IndexError(item)
        ids = self.unlabelled[item - len(self.labelled)]
        return {"input_ids": ids, "labels": np.full_like(ids, IGNORED)}
