"""Encode text as token ids: lines, of which those that are too long become several sequences, and documents."""

from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.tokenizer import Tokenizer
from biosqueeze.data.word_starts import is_byte_level
from biosqueeze.errors import SqueezeError

Ids = NDArray[np.int64]
LINES_AT_ONCE = 1024
NO_LETTER = (
    "the tokenizer drops the letter a, for which it has no token, so nothing shows where its special tokens belong; "
    "give a tokenizer with a token for what is unknown"
)
NO_TOKEN = "no line of the corpus gives a single token; check that its text suits the tokenizer"


@dataclass(frozen=True)
class Frame:
    """The special tokens that a tokenizer puts before and after one text."""

    before: Ids
    after: Ids

    def __len__(self) -> int:
        """Return the number of special tokens of one text."""
        return len(self.before) + len(self.after)

    def around(self, ids: NDArray[np.integer]) -> Ids:
        """Return the ids (n,) with their special tokens, (n + len(frame),)."""
        return np.concatenate([self.before, ids.astype(np.int64), self.after])

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Frame":
        """Return the frame of a tokenizer, from its encoding of a single letter.

        Raises:
            SqueezeError: it drops the letter.
        """
        encoded = tokenizer("a", return_special_tokens_mask=True)
        ids = np.asarray(encoded["input_ids"], dtype=np.int64)
        text = np.flatnonzero(np.asarray(encoded["special_tokens_mask"]) == 0)
        if not len(text):
            raise SqueezeError(NO_LETTER)
        return cls(ids[: text[0]], ids[text[-1] + 1 :])


@dataclass(frozen=True)
class EncodedLines:
    """Some lines of a corpus as token ids, without special tokens."""

    texts: int
    ids: NDArray[np.integer]  # (tokens,)
    sizes: Ids  # (sequences,) tokens of each; a line that exceeds the room is several sequences
    rows: Ids | None = None  # (rows,) sequences of each row of a shard, in this order; None: they are packed


def encode_lines(lines: Iterable[str], tokenizer: Tokenizer, room: int) -> Iterator[EncodedLines]:
    """Tokenise a stream of lines, `LINES_AT_ONCE` at a time.

    Args:
        lines: one sentence or document each.
        tokenizer: a fast tokenizer.
        room: tokens in a sequence, without special tokens.
    """
    stream = iter(lines)
    while batch := list(islice(stream, LINES_AT_ONCE)):
        encoded = _encode(batch, tokenizer)
        sizes = [min(room, len(text) - start) for text in encoded for start in range(0, len(text), room)]
        yield EncodedLines(len(batch), _joined(encoded), np.array(sizes, dtype=np.int64))


@dataclass(frozen=True)
class EncodedDocuments:
    """Some documents as token ids, without special tokens."""

    ids: NDArray[np.integer]  # (tokens,)
    sentences: Ids  # (sentences,) tokens of each
    documents: Ids  # (documents,) sentences of each

    def joined(self, room: int) -> EncodedLines:
        """Return texts of whole sentences that follow each other in a document, as many as fit into the room.

        They are the DOC-SENTENCES of RoBERTa (Liu et al. 2019, section 4.2). A sentence that exceeds the room is cut.
        """
        sizes: list[int] = []
        sentences = iter(self.sentences.tolist())
        for count in self.documents.tolist():
            text = 0
            for size in islice(sentences, count):
                if text and text + size > room:
                    sizes.append(text)
                    text = 0
                text += size
                while text > room:
                    sizes.append(room)
                    text -= room
            sizes.append(text)
        return EncodedLines(len(self.documents), self.ids, np.array(sizes, dtype=np.int64))

    def whole(self) -> EncodedLines:
        """Return the sentences, of which each document is a row."""
        return EncodedLines(len(self.documents), self.ids, self.sentences, self.documents)


def encode_documents(documents: Iterable[list[str]], tokenizer: Tokenizer) -> Iterator[EncodedDocuments]:
    """Tokenise a stream of documents, some `LINES_AT_ONCE` sentences at a time.

    Args:
        documents: the sentences of each. Byte-level BPE gets the space between two of them.
        tokenizer: a fast tokenizer.
    """
    space = " " if is_byte_level(tokenizer) else ""
    batch: list[str] = []
    counts: list[int] = []
    for document in documents:
        batch += [document[0], *(space + sentence for sentence in document[1:])]
        counts.append(len(document))
        if len(batch) >= LINES_AT_ONCE:
            yield _encoded_documents(batch, counts, tokenizer)
            batch, counts = [], []
    if batch:
        yield _encoded_documents(batch, counts, tokenizer)


def _encoded_documents(batch: list[str], counts: list[int], tokenizer: Tokenizer) -> EncodedDocuments:
    """Tokenise the sentences of documents; sentences and documents without a token are left out."""
    encoded = _encode(batch, tokenizer)
    sizes = np.array([len(ids) for ids in encoded], dtype=np.int64)
    owners = np.repeat(np.arange(len(counts)), counts)
    documents = np.bincount(owners[sizes > 0], minlength=len(counts))
    return EncodedDocuments(_joined(encoded), sizes[sizes > 0], documents[documents > 0])


def _encode(batch: list[str], tokenizer: Tokenizer) -> list[list[int]]:
    encoded: list[list[int]] = tokenizer(
        batch,
        add_special_tokens=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    )["input_ids"]
    return encoded


def _joined(encoded: list[list[int]]) -> NDArray[np.integer]:
    return np.fromiter(chain.from_iterable(encoded), dtype=np.int32)


def room_within(max_length: int, frame: Sized, least: int = 1) -> int:
    """Return how many tokens of text fit into max_length beside the special tokens.

    Args:
        max_length: tokens of a sequence.
        frame: the special tokens.
        least: tokens of text that have to fit.

    Raises:
        SqueezeError: fewer fit; the message has the smallest possible length.
    """
    room = max_length - len(frame)
    if room < least:
        raise SqueezeError(
            f"a maximum length of {max_length} leaves no room beside {len(frame)} special tokens; "
            f"give --max-length {len(frame) + least} or more"
        )
    return room
