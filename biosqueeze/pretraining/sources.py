"""Item sources of pretraining: masked pairs of segments, a mask rate that climbs, and held-out text."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from biosqueeze.data.collate import Features
from biosqueeze.data.feature_keys import INPUT_IDS, LABELS, PAIR_LABEL, TOKEN_TYPE_IDS
from biosqueeze.data.sequence_frame import SequenceFrame
from biosqueeze.data.text.blocks import Ids
from biosqueeze.data.text.mask_rate import MaskRate
from biosqueeze.data.text.masking import Masking
from biosqueeze.data.text.prepared_documents import Documents
from biosqueeze.data.text.sentence_pairs import SentencePairs
from biosqueeze.pretraining.data_settings import PretrainingDataSettings
from biosqueeze.training.sources import MaskedBlocks, WrappedSource

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class MaskedPairs:
    """Pairs of segments for masked language modelling with NSP or SOP; paired and masked differently in each epoch."""

    pairs: SentencePairs
    frame: SequenceFrame
    pad_token_id: int
    masking: Masking
    rate: float
    maskings: int | None = None  # epochs after which the pairs repeat, as the masks do; None: they never do

    @classmethod
    def of(
        cls,
        documents: Documents,
        tokenizer: "PreTrainedTokenizerBase",
        length: int,
        settings: PretrainingDataSettings,
    ) -> Self:
        """Plan the pairs; they are masked at the first rate of the settings.

        Raises:
            ValueError: the settings are for single texts.
            SqueezeError: the documents or the length do not suit pairs, or words cannot be found with this tokenizer.
        """
        if settings.pairs is None:
            raise ValueError("the settings name no kind of pairs")
        frame = SequenceFrame.of(tokenizer, 2)
        pairs = SentencePairs.of(documents, length - len(frame), settings.pairs, settings.seed)
        masking = Masking.of(tokenizer, settings.mask_unit)
        return cls(pairs, frame, int(tokenizer.pad_token_id), masking, settings.mask_rate.first, settings.maskings)

    def draw(self, epoch: int, rng: np.random.Generator) -> Ids:
        """Return all pairs of an epoch."""
        del rng
        count = len(self.pairs)
        return (epoch % self.maskings if self.maskings else epoch) * count + np.arange(count)

    def length(self, items: Ids) -> Ids:
        """Return the lengths in tokens, special tokens included."""
        return self.pairs.lengths_of(items) + len(self.frame)

    def features(self, item: int, rng: np.random.Generator) -> Features:
        """Return masked `input_ids`, `token_type_ids` and `labels`, (length,) each, and `pair_label` ()."""
        pair = self.pairs.pair(item, rng)
        ids, types = self.frame.framed([pair.first, pair.second])
        masked, labels = self.masking(ids, rng, self.rate)
        label = np.array(pair.label, dtype=np.int64)
        return {INPUT_IDS: masked, TOKEN_TYPE_IDS: types, LABELS: labels, PAIR_LABEL: label}


@dataclass(frozen=True)
class ClimbingMasking(WrappedSource):
    """Masked text whose rate changes during the training; see `training.batches.ChangingSource`."""

    source: MaskedBlocks | MaskedPairs
    rate: MaskRate

    def at(self, done: float) -> MaskedBlocks | MaskedPairs:
        """Return the text masked at the rate after a share of the training."""
        return replace(self.source, rate=self.rate.at(done))


@dataclass(frozen=True)
class FixedDraws(WrappedSource):
    """Text that is paired and masked in the same way whenever it is read, for scores that can be compared."""

    seed: int

    def draw(self, epoch: int, rng: np.random.Generator) -> Ids:
        """Return the items of the first epoch."""
        del epoch, rng
        return self.source.draw(0, np.random.default_rng(self.seed))

    def features(self, item: int, rng: np.random.Generator) -> Features:
        """Return the features of an item, which depend on the seed and the item alone."""
        del rng
        return self.source.features(item, np.random.default_rng([self.seed, item]))
