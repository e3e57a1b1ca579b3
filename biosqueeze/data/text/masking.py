"""Mask tokens for masked language modelling (Devlin et al. 2019, section 3.1): pieces, words, n-grams, spans."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.feature_keys import IGNORED
from biosqueeze.data.text.mask_rate import MaskUnit
from biosqueeze.data.word_starts import word_starts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Ids = NDArray[np.int64]

# Lengths of spans in words: geometric with p = 0.2, at most 10 (Joshi et al. 2020, SpanBERT, section 3.1). As in its
# code, the probabilities of the lengths 1 to 10 are normalised, so that the mean is 3.8.
_SPAN_END, _MOST_WORDS = 0.2, 10
_SPAN_LENGTHS = np.cumsum((1 - _SPAN_END) ** np.arange(_MOST_WORDS) * _SPAN_END) / (1 - (1 - _SPAN_END) ** _MOST_WORDS)
# Lengths of n-grams in words: 1 to 3 with probabilities proportional to 1/n (Lan et al. 2020, ALBERT, section 4.1).
_NGRAM_LENGTHS = np.cumsum([6, 3, 2]) / 11


class _Words(NamedTuple):
    """The words of a sequence, of which special tokens are no part."""

    sizes: Ids  # (words,) in tokens
    is_first: NDArray[np.bool_]  # (words,) whether it is the first of a text

    @property
    def ends(self) -> Ids:
        """The number of the first word after the text that a word is in, (words,)."""
        firsts = np.append(np.flatnonzero(self.is_first), len(self.sizes))
        return firsts[np.cumsum(self.is_first)]


@dataclass(frozen=True)
class Masking:
    """Which tokens are chosen to be predicted, and what they are replaced by.

    80% of the chosen tokens become [MASK], 10% a random token, and 10% stay unchanged.

    * piece: single tokens, each with a replacement of its own.
    * word: all tokens of a word; each token has a replacement of its own, and a word that would exceed the number of
      tokens to choose is skipped (create_pretraining_data.py of google-research/bert with whole-word masking).
    * ngram: 1 to 3 words in succession; each token has a replacement of its own, and an n-gram that would exceed the
      number of tokens to choose is shortened or skipped (create_pretraining_data.py of google-research/albert).
    * span: words in succession; one kind of replacement for the tokens of a span, or of spans that touch (SpanBERT,
      section 3.1, and `span_masking` in its code).
    """

    masked_share: ClassVar[float] = 0.8
    random_share: ClassVar[float] = 0.1

    mask_token_id: int
    special_ids: tuple[int, ...]  # never chosen, and never drawn as a random token
    vocabulary: int  # random tokens are drawn from 0..vocabulary-1
    unit: MaskUnit = "piece"
    starts: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """Whether each id starts a word, (ids,), see `word_starts`; of no use for single pieces."""

    @classmethod
    def of(cls, tokenizer: "PreTrainedTokenizerBase", unit: MaskUnit = "piece") -> Self:
        """Build it with the special tokens of a tokenizer, which must have a mask token.

        Raises:
            SqueezeError: the unit is made of words, which cannot be found with this tokenizer.
        """
        known = int(tokenizer.mask_token_id), tuple(tokenizer.all_special_ids), len(tokenizer)
        return cls(*known, unit) if unit == "piece" else cls(*known, unit, word_starts(tokenizer))

    def __call__(
        self, ids: Ids, rng: np.random.Generator, rate: float = 0.15, segments: Ids | None = None
    ) -> tuple[Ids, Ids]:
        """Mask a sequence.

        Args:
            ids: token ids (length,), special tokens included.
            rng: the only source of randomness; equal states give equal results.
            rate: share of the ordinary tokens to choose; at least one token, word or span, if there is any.
            segments: number of the text of each token in a packed block (length,); no word crosses a border.

        Returns:
            input ids (length,) and labels (length,): the original ids of the chosen tokens, -100 elsewhere.
        """
        ordinary = np.flatnonzero(np.take(self._ordinary, ids, mode="clip"))
        labels = np.full_like(ids, IGNORED)
        if not len(ordinary):
            return ids.copy(), labels
        count = max(1, round(rate * len(ordinary)))
        if self.unit == "piece":
            chosen = rng.permutation(ordinary)[:count]
        else:
            words = self._words(ids, ordinary, segments)
            chosen_words = _CHOOSE[self.unit](words, count, rng)
            chosen = ordinary[np.repeat(chosen_words, words.sizes)]
        labels[chosen] = ids[chosen]
        return self._replaced(ids, chosen, rng), labels

    def _replaced(self, ids: Ids, chosen: Ids, rng: np.random.Generator) -> Ids:
        """Return a copy of ids with the tokens at the chosen positions replaced."""
        # Draw ranks among the ordinary tokens, and skip the special ids below each.
        special = self._special
        ranks = rng.integers(0, max(1, self.vocabulary - len(special)), size=len(chosen))
        random = ranks + np.searchsorted(special - np.arange(len(special)), ranks, side="right")
        draw = rng.random(len(chosen))
        if self.unit == "span":
            draw[1:] = draw[np.cumsum(chosen[1:] - chosen[:-1] > 1)]
        masked = ids.copy()
        replaced = np.where(draw < self.masked_share + self.random_share, random, ids[chosen])
        masked[chosen] = np.where(draw < self.masked_share, self.mask_token_id, replaced)
        return masked

    def _words(self, ids: Ids, ordinary: Ids, segments: Ids | None) -> _Words:
        """Find the words of a sequence; a token after a special one, or the first of a segment, starts one too."""
        borders = np.ones(len(ordinary), dtype=bool)
        np.not_equal(ordinary[1:] - ordinary[:-1], 1, out=borders[1:])
        if segments is not None:
            numbers = segments[ordinary]
            borders[1:] |= numbers[1:] != numbers[:-1]
        firsts = np.flatnonzero(borders | self.starts[ids[ordinary]])  # (words,)
        sizes = np.empty_like(firsts)
        np.subtract(firsts[1:], firsts[:-1], out=sizes[:-1])
        sizes[-1] = len(ordinary) - firsts[-1]
        return _Words(sizes, borders[firsts])

    @cached_property
    def _ordinary(self) -> NDArray[np.bool_]:
        """Whether each id may be chosen; the last entry stands for all larger ids."""
        table = np.ones(2 + max(self.special_ids, default=0), dtype=bool)
        table[[number for number in self.special_ids if number >= 0]] = False
        return table

    @cached_property
    def _special(self) -> Ids:
        """The special ids within the vocabulary, sorted."""
        return np.unique([number for number in self.special_ids if 0 <= number < self.vocabulary]).astype(np.int64)


class GeneratorMasking(Masking):
    """Masking for ELECTRA's generator: 85% of the chosen tokens become [MASK], 15% stay, as in the authors' code.

    The paper (Clark et al. 2020, section 2) has [MASK] for all of them.
    """

    masked_share = 0.85
    random_share = 0.0


def _choose_words(words: _Words, count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Choose words in random order, each that still fits into `count` tokens; the first one if none does: (words,)."""
    sizes = words.sizes
    order = rng.permutation(len(sizes))
    shuffled = sizes[order]
    totals = np.cumsum(shuffled)
    prefix = int(np.searchsorted(totals, count, side="right"))
    chosen = np.zeros(len(sizes), dtype=bool)
    chosen[order[:prefix]] = True
    left = count - (int(totals[prefix - 1]) if prefix else 0)
    while left and (fitting := shuffled[prefix:] <= left).any():
        following = prefix + int(fitting.argmax())
        chosen[order[following]] = True
        left -= int(shuffled[following])
        prefix = following + 1
    if left == count:
        chosen[order[0]] = True
    return chosen


def _choose_ngrams(words: _Words, count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Choose the words of n-grams that fit into `count` tokens; the first word if none does: (words,).

    They do not overlap. Shorter n-grams are tried where one does not fit, as in ALBERT's code.
    """
    sizes, ends = words.sizes.tolist(), words.ends.tolist()
    order = rng.permutation(len(sizes)).tolist()
    lengths = 1 + np.searchsorted(_NGRAM_LENGTHS[:-1], rng.random(len(sizes)), side="right")
    chosen = [False] * len(sizes)
    left = count
    for start, length in zip(order, lengths.tolist(), strict=True):
        end = min(start + length, ends[start])
        while sum(sizes[start:end]) > left:
            end -= 1
        if end == start or any(chosen[start:end]):
            continue
        chosen[start:end] = [True] * (end - start)
        left -= sum(sizes[start:end])
        if not left:
            break
    if left == count:
        chosen[order[0]] = True
    return np.array(chosen)


def _choose_spans(words: _Words, count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Choose the words of spans until `count` tokens are chosen: (words,).

    As in SpanBERT's code, a span starts at the word of a random token outside all spans before it, and may go on into
    these. Where that cuts a word at the end, here the word belongs to the last span if half of it still fits.
    """
    sizes, ends = words.sizes.tolist(), words.ends.tolist()
    chosen = [False] * len(sizes)
    draws = _draw_spans(words.sizes, count, rng)
    left = count
    while left > 0:
        start, length = next(draws)
        if chosen[start]:
            continue
        for word in range(start, min(start + length, ends[start])):
            if chosen[word]:
                continue
            if 2 * max(left, 0) < sizes[word] and left < count:
                left = 0
                break
            chosen[word] = True
            left -= sizes[word]
    return np.array(chosen)


def _draw_spans(sizes: Ids, count: int, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Draw first words and lengths in words, without end."""
    word_of_token = np.repeat(np.arange(len(sizes)), sizes)
    while True:
        starts = word_of_token[rng.integers(0, len(word_of_token), size=count)]
        lengths = 1 + np.searchsorted(_SPAN_LENGTHS[:-1], rng.random(count), side="right")
        yield from zip(starts.tolist(), lengths.tolist(), strict=True)


_CHOOSE = {"word": _choose_words, "ngram": _choose_ngrams, "span": _choose_spans}
