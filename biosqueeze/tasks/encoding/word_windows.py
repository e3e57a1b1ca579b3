"""Long sentences as overlapping windows of sub-words, and back: each word is owned by exactly one window."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.blocks import Frame, Ids, room_within
from biosqueeze.data.feature_keys import IGNORED, LABELS, NO_WORD, WORDS
from biosqueeze.tasks.readers.tagged import Sentence

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Floats = NDArray[np.float32]
SENTENCES_AT_ONCE = 1024


@dataclass(frozen=True)
class TagWindow:
    """A stretch of one sentence. Every word is owned by exactly one window of its sentence."""

    example: int
    input_ids: Ids  # (length,) with special tokens
    labels: Ids  # (length,) label id on the first sub-word of an owned word (or on all that are owned), -100 elsewhere
    words: Ids  # (length,) word index on the first sub-word of an owned word, -1 elsewhere

    @property
    def features(self) -> dict[str, Ids]:
        """What `data.collate.pad` takes."""
        return {"input_ids": self.input_ids, LABELS: self.labels, WORDS: self.words}


class TagIds(NamedTuple):
    """The labels of a sentence's words."""

    first: Ids  # (words,) for the first sub-word of each
    more: Ids | None = None  # (words,) for its other sub-words; None if these are not trained on


@dataclass(frozen=True)
class Pieces:
    """A sentence in sub-words."""

    ids: Ids  # (pieces,)
    words: Ids  # (pieces,) the word each piece begins, or -1
    owners: Ids  # (pieces,) the word each piece belongs to

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, start: int, end: int) -> "Pieces":
        """Some of the pieces."""
        return Pieces(self.ids[start:end], self.words[start:end], self.owners[start:end])


def windows_of(
    examples: Sequence[Sentence], tags: Sequence[TagIds], tokenizer: "PreTrainedTokenizerBase", max_length: int
) -> list[TagWindow]:
    """Cut sentences into windows of at most max_length tokens, special ones included, in order.

    Args:
        examples: sentences.
        tags: the labels of each.
        tokenizer: a fast tokenizer.
        max_length: tokens in a window.

    Raises:
        SqueezeError: max_length leaves no room for text.
    """
    frame = Frame.of(tokenizer)
    room = room_within(max_length, frame)
    return [
        window
        for number, (sentence, pieces) in enumerate(zip(examples, pieces_of(examples, tokenizer), strict=True))
        for part in _parts(pieces, sentence.starts)
        for window in _windows(number, part, tags[number], room, frame)
    ]


def emissions(
    windows: Sequence[TagWindow], logits: Sequence[Floats], examples: Sequence[Sentence], labels: int
) -> list[Floats]:
    """The logits of every word of whole sentences, (words, labels) each, from those of their windows.

    Args:
        windows: as `windows_of` gave them.
        logits: for each window (length or more, labels).
        examples: the sentences that were encoded.
        labels: how many there are.
    """
    made = [np.zeros((len(sentence.words), labels), np.float32) for sentence in examples]
    for window, scores in zip(windows, logits, strict=True):
        places = np.flatnonzero(window.words != NO_WORD)
        made[window.example][window.words[places]] = scores[places]
    return made


def pieces_of(examples: Sequence[Sentence], tokenizer: "PreTrainedTokenizerBase") -> Iterator[Pieces]:
    """The sub-words of each sentence, without special tokens."""
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


def _word_prefix(tokenizer: "PreTrainedTokenizerBase") -> str:
    """What to put before each word: a byte-level tokenizer (RoBERTa's) reads bare words as glued together."""
    return " " if "ByteLevel" in repr(tokenizer.backend_tokenizer.pre_tokenizer) else ""


def _pieces(ids: list[int], word_ids: list[int | None], words: int, unknown: int | None) -> Pieces:
    """Mark where words begin; a word that the tokenizer drops (a control character) stands as unknown."""
    owners = np.array(word_ids, dtype=np.int64)
    begins = np.diff(owners, prepend=NO_WORD) != 0
    marked = np.where(begins, owners, NO_WORD)
    dropped = np.setdiff1d(np.arange(words), owners)
    at = np.searchsorted(owners, dropped)
    filler = 0 if unknown is None else unknown
    return Pieces(
        np.insert(np.array(ids, dtype=np.int64), at, filler),
        np.insert(marked, at, dropped),
        np.insert(owners, at, dropped),
    )


def _parts(pieces: Pieces, starts: Sequence[int]) -> Iterator[Pieces]:
    """The pieces of each sentence of a text."""
    bounds = [0, *np.flatnonzero(np.isin(pieces.words, starts)).tolist(), len(pieces)]
    for start, end in pairwise(bounds):
        yield pieces.part(start, end)


def _windows(example: int, pieces: Pieces, tags: TagIds, room: int, frame: Frame) -> Iterator[TagWindow]:
    spans = _spans(pieces, room)
    owner = _owner(spans, len(pieces))
    for number, (start, end) in enumerate(spans):
        owned = owner[start:end] == number
        words = np.where(owned, pieces.words[start:end], NO_WORD)
        labels = np.where(words == NO_WORD, IGNORED, tags.first[words])
        if tags.more is not None:
            labels = np.where(owned & (words == NO_WORD), tags.more[pieces.owners[start:end]], labels)
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


def _spans(pieces: Pieces, room: int) -> list[tuple[int, int]]:
    """Stretches of at most `room` pieces, all covered, each about half over the last, begun at a word if near."""
    word_starts = np.flatnonzero(pieces.words != NO_WORD)
    spans = [(0, min(room, len(pieces)))]
    while spans[-1][1] < len(pieces):
        start = min(spans[-1][0] + (room + 1) // 2, len(pieces) - room)
        near = word_starts[(word_starts >= start) & (word_starts <= start + room // 4)]
        start = int(near[0]) if len(near) else start
        spans.append((start, min(start + room, len(pieces))))
    return spans


def _owner(spans: list[tuple[int, int]], length: int) -> Ids:
    """For each piece the span in which it lies farthest from an edge, (pieces,).

    At the ends of a sentence nothing is cut off, but there no other span comes farther from its edge either.
    """
    farthest = np.full(length, -1)  # (pieces,) from the edge of its owner; the first of equal spans keeps it
    owner: Ids = np.zeros(length, dtype=np.int64)  # (pieces,)
    for number, (start, end) in enumerate(spans):
        from_left = np.arange(end - start)
        inward = np.minimum(from_left, from_left[::-1])
        better = inward > farthest[start:end]
        farthest[start:end][better] = inward[better]
        owner[start:end][better] = number
    return owner
