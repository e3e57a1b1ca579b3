"""Sentences as windows of sub-words, and back to words; long ones overlap, and each word belongs to one window."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.feature_keys import IGNORED, INPUT_IDS, LABELS, NO_WORD, WORDS
from biosqueeze.data.text.blocks import Frame, Ids, room_within
from biosqueeze.data.tokenizer import Tokenizer
from biosqueeze.tasks.readers.tagged import Sentence

Floats = NDArray[np.float32]
SENTENCES_AT_ONCE = 1024


@dataclass(frozen=True)
class TagWindow:
    """A part of one sentence. Every word belongs to exactly one window of its sentence."""

    example: int
    input_ids: Ids  # (length,) with special tokens
    labels: Ids  # (length,) label id on the first sub-word of the window's words (or on all sub-words), -100 elsewhere
    words: Ids  # (length,) word index on the first sub-word of the window's words, -1 elsewhere

    @property
    def features(self) -> dict[str, Ids]:
        """The features for `data.collate.pad`."""
        return {INPUT_IDS: self.input_ids, LABELS: self.labels, WORDS: self.words}


class TagIds(NamedTuple):
    """The label ids of a sentence's words."""

    first: Ids  # (words,) for the first sub-word of each
    rest: Ids | None = None  # (words,) for its other sub-words; None if these are not trained on


@dataclass(frozen=True)
class WordPieces:
    """The sub-words of a sentence."""

    ids: Ids  # (pieces,)
    words: Ids  # (pieces,) the word that begins at a sub-word, or -1
    owners: Ids  # (pieces,) the word that a sub-word belongs to

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, start: int, end: int) -> "WordPieces":
        """Return the sub-words from `start` to `end`, exclusive."""
        return WordPieces(self.ids[start:end], self.words[start:end], self.owners[start:end])


def tag_windows(
    examples: Sequence[Sentence], tags: Sequence[TagIds], tokenizer: Tokenizer, max_length: int
) -> list[TagWindow]:
    """Cut sentences into windows of at most max_length tokens, special tokens included, in order.

    Args:
        examples: sentences.
        tags: the label ids of each.
        tokenizer: a fast tokenizer.
        max_length: tokens in a window.

    Raises:
        SqueezeError: max_length leaves no room for text.
    """
    frame = Frame.of(tokenizer)
    room = room_within(max_length, frame)
    return [
        window
        for number, (sentence, pieces) in enumerate(zip(examples, tokenize_sentences(examples, tokenizer), strict=True))
        for part in _parts(pieces, sentence.starts)
        for window in _windows(number, part, tags[number], room, frame)
    ]


def word_logits(
    windows: Sequence[TagWindow], logits: Sequence[Floats], examples: Sequence[Sentence], labels: int
) -> list[Floats]:
    """Return the logits of every word of each sentence, (words, labels), from those of its windows.

    Args:
        windows: as returned by `tag_windows`.
        logits: for each window (length or more, labels).
        examples: the encoded sentences.
        labels: number of labels.
    """
    of_words = [np.zeros((len(sentence.words), labels), np.float32) for sentence in examples]
    for window, of_tokens in zip(windows, logits, strict=True):
        positions = np.flatnonzero(window.words != NO_WORD)
        of_words[window.example][window.words[positions]] = of_tokens[positions]
    return of_words


def tokenize_sentences(examples: Sequence[Sentence], tokenizer: Tokenizer) -> Iterator[WordPieces]:
    """Yield the sub-words of each sentence, without special tokens."""
    space = _word_prefix(tokenizer)
    for start in range(0, len(examples), SENTENCES_AT_ONCE):
        batch = examples[start : start + SENTENCES_AT_ONCE]
        encoded = tokenizer(
            [[space + word for word in sentence.words] for sentence in batch],
            is_split_into_words=True,
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        for index, sentence in enumerate(batch):
            unknown = tokenizer.unk_token_id
            yield _pieces(encoded["input_ids"][index], encoded.word_ids(index), len(sentence.words), unknown)


def _word_prefix(tokenizer: Tokenizer) -> str:
    """Return the prefix of each word: a byte-level tokenizer (RoBERTa's) joins words without a space."""
    return " " if "ByteLevel" in repr(tokenizer.backend_tokenizer.pre_tokenizer) else ""


def _pieces(ids: list[int], word_ids: list[int | None], words: int, unknown: int | None) -> WordPieces:
    """Mark where words begin; a word that the tokenizer drops (a control character) becomes an unknown token."""
    owners = np.array(word_ids, dtype=np.int64)
    begins = np.diff(owners, prepend=NO_WORD) != 0
    marked = np.where(begins, owners, NO_WORD)
    dropped = np.setdiff1d(np.arange(words), owners)
    at = np.searchsorted(owners, dropped)
    filler = 0 if unknown is None else unknown
    return WordPieces(
        np.insert(np.array(ids, dtype=np.int64), at, filler),
        np.insert(marked, at, dropped),
        np.insert(owners, at, dropped),
    )


def _parts(pieces: WordPieces, starts: Sequence[int]) -> Iterator[WordPieces]:
    """Yield the sub-words of each sentence of a text."""
    bounds = [0, *np.flatnonzero(np.isin(pieces.words, starts)).tolist(), len(pieces)]
    for start, end in pairwise(bounds):
        yield pieces.part(start, end)


def _windows(example: int, pieces: WordPieces, tags: TagIds, room: int, frame: Frame) -> Iterator[TagWindow]:
    spans = _spans(pieces, room)
    owner = _owner(spans, len(pieces))
    for number, (start, end) in enumerate(spans):
        owned = owner[start:end] == number
        words = np.where(owned, pieces.words[start:end], NO_WORD)
        labels = np.where(words == NO_WORD, IGNORED, tags.first[words])
        if tags.rest is not None:
            labels = np.where(owned & (words == NO_WORD), tags.rest[pieces.owners[start:end]], labels)
        if (labels == IGNORED).all() and (words == NO_WORD).all():
            continue
        yield TagWindow(
            example,
            frame.around(pieces.ids[start:end]),
            _framed(labels, frame, IGNORED),
            _framed(words, frame, NO_WORD),
        )


def _framed(values: Ids, frame: Frame, fill: int) -> Ids:
    return np.pad(values, (len(frame.before), len(frame.after)), constant_values=fill)


def _spans(pieces: WordPieces, room: int) -> list[tuple[int, int]]:
    """Return ranges of at most `room` sub-words that cover all.

    Each overlaps about half of the previous one, and starts at a word if one is near.
    """
    word_starts = np.flatnonzero(pieces.words != NO_WORD)
    spans = [(0, min(room, len(pieces)))]
    while spans[-1][1] < len(pieces):
        start = min(spans[-1][0] + (room + 1) // 2, len(pieces) - room)
        near = word_starts[np.searchsorted(word_starts, start) :][:1]
        start = int(near[0]) if len(near) and near[0] <= start + room // 4 else start
        spans.append((start, min(start + room, len(pieces))))
    return spans


def _owner(spans: list[tuple[int, int]], length: int) -> Ids:
    """Return for each sub-word the range in which it is farthest from an edge, (pieces,).

    At the ends of a sentence no context is missing, but no other range is farther from its edge there either.
    """
    farthest = np.full(length, -1)  # (pieces,) distance from an edge of the owner; of equal ranges the first is taken
    owner: Ids = np.zeros(length, dtype=np.int64)  # (pieces,)
    for number, (start, end) in enumerate(spans):
        from_left = np.arange(end - start)
        distance = np.minimum(from_left, from_left[::-1])
        better = distance > farthest[start:end]
        farthest[start:end][better] = distance[better]
        owner[start:end][better] = number
    return owner
