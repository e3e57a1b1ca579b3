"""Load the data of a pretraining: masked text, in blocks or pairs, and a held-out share of it."""

from dataclasses import dataclass, replace

import numpy as np
from transformers import PreTrainedTokenizerBase

from biosqueeze.data.text.corpus import corpus_files, held_out_files
from biosqueeze.data.text.hashed_share import HashedShare
from biosqueeze.data.text.masking import GeneratorMasking, Masking
from biosqueeze.data.text.prepared import DocumentText
from biosqueeze.data.text.sentence_pairs import SentencePairs
from biosqueeze.errors import SqueezeError
from biosqueeze.pretraining.data_settings import PretrainingDataSettings
from biosqueeze.pretraining.sources import ClimbingMasking, FixedDraws, MaskedPairs
from biosqueeze.progress import note, warn
from biosqueeze.training.batches import ItemSource
from biosqueeze.training.sources import MaskedBlocks

_HELD_OUT = "held-out text"
_MOST_RANDOM = 0.7
"""Share of random pairs. BERT's rule gives some 60% with abstracts at length 512, and more at shorter lengths."""


@dataclass(frozen=True)
class PretrainingData:
    """The text that is trained on, and the text that is only scored."""

    source: ItemSource
    held_out: ItemSource | None
    """Masked and paired in the same way at each evaluation, at the last mask rate of the training."""
    tokens: int
    """Of one pass over the text that is trained on, special tokens included, without padding."""


def load_pretraining_data(
    settings: PretrainingDataSettings, tokenizer: PreTrainedTokenizerBase, length: int, *, with_held_out: bool = True
) -> PretrainingData:
    """Read the corpus, or load it from the cache.

    Single texts are whole sentences that follow each other in a document; features as of `MaskedBlocks`. Pairs are two
    segments with the tokenizer's special tokens; features as of `MaskedPairs`.

    Args:
        settings: which text, and how it is masked and paired.
        tokenizer: a fast tokenizer.
        length: tokens in a sequence, special tokens included.
        with_held_out: whether the held-out text, if there is any, is read too.

    Raises:
        SqueezeError: a source cannot be read, the tokenizer has no mask token or does not show where words start, or
            the documents or the length do not suit pairs.
    """
    if tokenizer.mask_token_id is None:
        raise SqueezeError("the tokenizer has no mask token, so no text can be masked; take one that has it")
    Masking.of(tokenizer, settings.mask_unit)  # raises before the corpus is prepared, which may take hours
    training, held_out = _texts(settings)
    masked, tokens = _masked(training, settings, tokenizer, length)
    source = ClimbingMasking(masked, settings.mask_rate) if settings.mask_rate.levels > 1 else masked
    fixed = _fixed(held_out, settings, tokenizer, length) if held_out and with_held_out else None
    return PretrainingData(source, fixed, tokens)


def _texts(settings: PretrainingDataSettings) -> tuple[DocumentText, DocumentText | None]:
    """Return the text to train on and the held-out text, if any."""
    files = tuple((source, corpus_files(source)) for source in settings.corpus)
    if settings.held_out:
        train, held_out = (HashedShare(settings.held_out, is_held_out) for is_held_out in (False, True))
        return DocumentText(files, settings.field, train), DocumentText(files, settings.field, held_out, _HELD_OUT)
    own = tuple((source, shards) for source in settings.corpus if (shards := held_out_files(source)))
    return DocumentText(files, settings.field), DocumentText(own, settings.field, name=_HELD_OUT) if own else None


def _masked(
    text: DocumentText, settings: PretrainingDataSettings, tokenizer: PreTrainedTokenizerBase, length: int
) -> tuple[MaskedBlocks | MaskedPairs, int]:
    """Prepare text and mask it at the first rate; return its number of tokens too, without padding."""
    rate, unit = settings.mask_rate.first, settings.mask_unit
    if settings.pairs is None:
        blocks = text.joined(tokenizer, length, pack=settings.pack)
        masking = (GeneratorMasking if settings.for_generator else Masking).of(tokenizer, unit)
        return MaskedBlocks(blocks, int(tokenizer.pad_token_id), masking, rate), blocks.corpus.tokens
    source = MaskedPairs.of(text.whole(tokenizer), tokenizer, length, settings)
    note(f"{text.name}: {source.pairs}")
    _check_balance(source.pairs, length)
    return source, int(source.length(np.arange(len(source.pairs))).sum())


def _check_balance(pairs: SentencePairs, length: int) -> None:
    """Warn where most pairs of next-sentence prediction are random, so that their label needs no reading."""
    if pairs.kind == "nsp" and pairs.random_share > _MOST_RANDOM:
        warn(
            f"{pairs.random_share:.0%} of the pairs have a random second segment, because few texts of {length} tokens "
            "have two sentences: next-sentence prediction learns little from them; give a longer --max-length, or "
            "--objective mlm"
        )


def _fixed(
    text: DocumentText, settings: PretrainingDataSettings, tokenizer: PreTrainedTokenizerBase, length: int
) -> FixedDraws:
    try:
        source, _ = _masked(text, settings, tokenizer, length)
    except SqueezeError as error:
        raise SqueezeError(f"{_HELD_OUT}: {error}") from error
    return FixedDraws(replace(source, rate=settings.mask_rate.final), settings.seed)
