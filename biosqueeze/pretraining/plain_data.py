"""Masked lines of a corpus, and a share of them that is held out."""

from dataclasses import dataclass, replace

import numpy as np
from transformers import PreTrainedTokenizerBase

from biosqueeze.data.mask_rate import MaskRate
from biosqueeze.data.prepared import prepare_corpus
from biosqueeze.pretraining.options import PretrainingOptions
from biosqueeze.training.batches import Features, ItemSource
from biosqueeze.training.sources import Blocks, Ids, MaskedBlocks, WrappedSource


@dataclass(frozen=True)
class PretrainingData:
    """The text that is trained on, and the text that is only scored."""

    source: ItemSource
    held_out: ItemSource | None


@dataclass(frozen=True)
class FixedDraws(WrappedSource):
    """Text that is masked in the same way whenever it is read."""

    seed: int

    def features(self, item: int, rng: np.random.Generator) -> Features:
        """Return the features of an item."""
        del rng
        return self.source.features(item, np.random.default_rng([self.seed, item]))


@dataclass(frozen=True)
class _Subset:
    blocks: Blocks
    items: Ids

    def __len__(self) -> int:
        return len(self.items)

    def lengths_of(self, items: Ids) -> Ids:
        return self.blocks.lengths_of(self.items[items])

    def features(self, item: int) -> Features:
        return dict(self.blocks.features(int(self.items[item])))


def load_pretraining_data(
    options: PretrainingOptions, tokenizer: PreTrainedTokenizerBase, length: int, *, pack: bool
) -> PretrainingData:
    """Read the corpus."""
    blocks = prepare_corpus(options.corpus, options.field, tokenizer, length, pack=pack)
    source = MaskedBlocks.of(blocks, tokenizer, MaskRate.parse(options.mask_rate).first, options.mask_unit)
    if not options.held_out:
        return PretrainingData(source, None)
    total = len(blocks)
    held = np.linspace(0, total - 1, max(1, round(total * options.held_out))).astype(np.int64)
    rest = np.setdiff1d(np.arange(total), held)
    held_out = FixedDraws(replace(source, blocks=_Subset(blocks, held)), options.seed)
    return PretrainingData(replace(source, blocks=_Subset(blocks, rest)), held_out)
