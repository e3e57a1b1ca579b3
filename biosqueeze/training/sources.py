"""Item sources: masked blocks of text, and labelled items mixed with unlabelled blocks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.collate import Features
from biosqueeze.data.feature_keys import INPUT_IDS, LABELS, WORDS
from biosqueeze.data.text.mask_rate import MaskUnit
from biosqueeze.data.text.masking import Masking
from biosqueeze.training.batches import ItemSource

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Ids = NDArray[np.int64]

_FOR_DECODING = (WORDS,)  # features that are no model inputs


class Blocks(Protocol):
    """Unlabelled text in blocks of at most the sequence length, such as `data.text.prepared.prepare_corpus` returns."""

    def __len__(self) -> int:
        """Return the number of blocks."""

    def lengths_of(self, items: Ids) -> Ids:
        """Return the lengths in tokens, (items,)."""

    def features(self, item: int) -> Mapping[str, Ids]:
        """Return the model inputs: `input_ids` (length,), and `positions` and `segments` where texts are packed."""


@dataclass(frozen=True)
class MaskedBlocks:
    """Blocks of text, packed or not, for masked language modelling; masked differently in each epoch."""

    blocks: Blocks
    pad_token_id: int
    masking: Masking
    rate: float

    @classmethod
    def of(cls, blocks: Blocks, tokenizer: "PreTrainedTokenizerBase", rate: float, unit: MaskUnit = "piece") -> Self:
        """Build the source with the special tokens of a tokenizer, which must have a mask token.

        Raises:
            SqueezeError: words are to be masked, and cannot be found with this tokenizer.
        """
        return cls(blocks, int(tokenizer.pad_token_id), Masking.of(tokenizer, unit), rate)

    def draw(self, epoch: int, rng: np.random.Generator) -> Ids:
        """Return all blocks."""
        del epoch, rng
        return np.arange(len(self.blocks))

    def length(self, items: Ids) -> Ids:
        """Return the lengths in tokens, special tokens included."""
        return self.blocks.lengths_of(items)

    def features(self, item: int, rng: np.random.Generator) -> Features:
        """Return the block's features with masked input_ids, and labels (length,): the id where masked, else -100."""
        block = self.blocks.features(item)
        ids, labels = self.masking(block[INPUT_IDS], rng, self.rate, block.get("segments"))
        return {**block, INPUT_IDS: ids, LABELS: labels}


@dataclass(frozen=True)
class Stratum:
    """Some of the unlabelled blocks, and how many of them an epoch has."""

    blocks: Ids
    drawn: int


@dataclass(frozen=True)
class Mixture:
    """Labelled items, and for each of them `ratio` unlabelled blocks, drawn again in each epoch."""

    labelled: Sequence[Features]
    unlabelled: Blocks | None
    ratio: float
    pad_token_id: int
    strata: Sequence[Stratum] | None = None  # None: the unlabelled blocks are drawn uniformly

    def draw(self, epoch: int, rng: np.random.Generator) -> Ids:
        """Return all labelled items and a sample of the unlabelled blocks; all blocks where no item is labelled."""
        del epoch
        labelled = np.arange(len(self.labelled))
        if self.unlabelled is None:
            return labelled
        if self.strata is not None:
            drawn = [rng.choice(each.blocks, size=each.drawn, replace=False) for each in self.strata]
            return np.concatenate([labelled, *(len(labelled) + items for items in drawn)])
        available, wanted = len(self.unlabelled), self._unlabelled_per_epoch
        # With replacement only where the corpus has fewer blocks than are drawn.
        sample = rng.choice(available, size=wanted, replace=wanted > available)
        return np.concatenate([labelled, len(labelled) + sample])

    @property
    def _unlabelled_per_epoch(self) -> int:
        if self.unlabelled is None:
            return 0
        if self.strata is not None:
            return sum(stratum.drawn for stratum in self.strata)
        return round(self.ratio * len(self.labelled)) if self.labelled else len(self.unlabelled)

    @property
    def available(self) -> int:
        """Return the number of unlabelled blocks that are drawn from."""
        if self.strata is not None:
            return sum(len(stratum.blocks) for stratum in self.strata)
        return len(self.unlabelled) if self.unlabelled else 0

    def unlabelled_among(self, sequences: int) -> int:
        """Return about how many of the sequences that were trained on were unlabelled blocks."""
        unlabelled = self._unlabelled_per_epoch
        return round(sequences * unlabelled / (len(self.labelled) + unlabelled))

    def length(self, items: Ids) -> Ids:
        """Return the lengths in tokens, special tokens included."""
        lengths = np.empty(len(items), dtype=np.int64)
        labelled = items < len(self.labelled)
        lengths[labelled] = [len(self.labelled[item]["input_ids"]) for item in items[labelled]]
        if self.unlabelled is not None:
            lengths[~labelled] = self.unlabelled.lengths_of(items[~labelled] - len(self.labelled))
        return lengths

    def features(self, item: int, rng: np.random.Generator) -> Features:
        """Return model inputs and labels of a labelled item, or the features of an unlabelled block."""
        del rng
        if item < len(self.labelled):
            return {key: value for key, value in self.labelled[item].items() if key not in _FOR_DECODING}
        if self.unlabelled is None:
            raise IndexError(item)
        return self.unlabelled.features(item - len(self.labelled))


@dataclass(frozen=True)
class WrappedSource:
    """Base class of sources that change the features of another source."""

    source: ItemSource

    @property
    def pad_token_id(self) -> int:
        """Return the id of the wrapped source."""
        return self.source.pad_token_id

    def draw(self, epoch: int, rng: np.random.Generator) -> Ids:
        """Return the items of the wrapped source."""
        return self.source.draw(epoch, rng)

    def length(self, items: Ids) -> Ids:
        """Return the lengths of the wrapped source."""
        return self.source.length(items)

    def features(self, item: int, rng: np.random.Generator) -> Features:
        """Return the features of the wrapped source."""
        return self.source.features(item, rng)
