"""The training data of the stages: labelled windows, unlabelled blocks, both mixed, and masked blocks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.feature_keys import INPUT_IDS, LABELS, WORDS
from biosqueeze.data.masking import mask
from biosqueeze.training.batches import Features, ItemSource

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Ids = NDArray[np.int64]

_FOR_DECODING = (WORDS,)  # no model reads these


class Blocks(Protocol):
    """Unlabelled text in pieces that a model can read, such as `data.prepared.prepare_corpus` gives."""

    def __len__(self) -> int:
        """How many there are."""

    def lengths_of(self, items: Ids) -> Ids:
        """Their lengths in tokens, (items,)."""

    def features(self, item: int) -> Mapping[str, Ids]:
        """What a model reads of one: `input_ids` (length,), and where texts are packed `positions` and `segments`."""


@dataclass(frozen=True)
class MaskedBlocks:
    """Blocks of text, packed or not, for masked language modelling; masked anew in every epoch."""

    blocks: Blocks
    pad_token_id: int
    mask_token_id: int
    special_ids: tuple[int, ...]
    vocabulary: int
    rate: float

    @classmethod
    def of(cls, blocks: Blocks, tokenizer: "PreTrainedTokenizerBase", rate: float) -> Self:
        """Blocks masked as their tokenizer does; it must have a mask token."""
        pad, hide = int(tokenizer.pad_token_id), int(tokenizer.mask_token_id)
        return cls(blocks, pad, hide, tuple(tokenizer.all_special_ids), len(tokenizer), rate)

    def draw(self, epoch: int, rng: np.random.Generator) -> Ids:
        """All blocks."""
        del epoch, rng
        return np.arange(len(self.blocks))

    def length(self, items: Ids) -> Ids:
        """Tokens with the special ones."""
        return self.blocks.lengths_of(items)

    def features(self, item: int, rng: np.random.Generator) -> Features:
        """What the block has, input_ids masked, and labels (length,): the true id where masked, -100 elsewhere."""
        block = self.blocks.features(item)
        ids, labels = mask(
            block["input_ids"], self.special_ids, self.vocabulary, self.mask_token_id, rng, rate=self.rate
        )
        return {**block, INPUT_IDS: ids, LABELS: labels}


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
        lengths = np.empty(len(items), dtype=np.int64)
        known = items < len(self.labelled)
        lengths[known] = [len(self.labelled[item]["input_ids"]) for item in items[known]]
        if self.unlabelled is not None:
            lengths[~known] = self.unlabelled.lengths_of(items[~known] - len(self.labelled))
        return lengths

    def features(self, item: int, rng: np.random.Generator) -> Features:
        """What a model reads and the truth; of unlabelled blocks what they have, the truth left open among it."""
        del rng
        if item < len(self.labelled):
            return {key: value for key, value in self.labelled[item].items() if key not in _FOR_DECODING}
        if self.unlabelled is None:
            raise IndexError(item)
        return self.unlabelled.features(item - len(self.labelled))


@dataclass(frozen=True)
class WrappedSource:
    """Other training data, item by item; whoever wraps them says what becomes of the features."""

    source: ItemSource

    @property
    def pad_token_id(self) -> int:
        """The source's."""
        return self.source.pad_token_id

    def draw(self, epoch: int, rng: np.random.Generator) -> Ids:
        """The source's."""
        return self.source.draw(epoch, rng)

    def length(self, items: Ids) -> Ids:
        """The source's."""
        return self.source.length(items)

    def features(self, item: int, rng: np.random.Generator) -> Features:
        """The source's."""
        return self.source.features(item, rng)
