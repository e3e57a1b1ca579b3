"""Encode text as token ids: one sequence per line; a line that is too long becomes several sequences."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.tokenizer import Tokenizer
from biosqueeze.errors import SqueezeError

Ids = NDArray[np.int64]
LINES_AT_ONCE = 1024
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
        """Return the frame of a tokenizer, from its encoding of a single letter."""
        encoded = tokenizer("a", return_special_tokens_mask=True)
        ids = np.asarray(encoded["input_ids"], dtype=np.int64)
        text = np.flatnonzero(np.asarray(encoded["special_tokens_mask"]) == 0)
        return cls(ids[: text[0]], ids[text[-1] + 1 :])


@dataclass(frozen=True)
class EncodedLines:
    """Some lines of a corpus as token ids, without special tokens."""

    texts: int
    ids: NDArray[np.integer]  # (tokens,)
    sizes: Ids  # (sequences,) tokens of each; a line that exceeds the room is several sequences


def encode_lines(lines: Iterable[str], tokenizer: Tokenizer, room: int) -> Iterator[EncodedLines]:
    """Tokenise a stream of lines, `LINES_AT_ONCE` at a time.

    Args:
        lines: one sentence or document each.
        tokenizer: a fast tokenizer.
        room: tokens in a sequence, without special tokens.
    """
    stream = iter(lines)
    while batch := list(islice(stream, LINES_AT_ONCE)):
        encoded = tokenizer(
            batch,
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )["input_ids"]
        ids = np.fromiter(chain.from_iterable(encoded), dtype=np.int32)
        sizes = [min(room, len(text) - start) for text in encoded for start in range(0, len(text), room)]
        yield EncodedLines(len(batch), ids, np.array(sizes, dtype=np.int64))


def room_within(max_length: int, frame: Frame) -> int:
    """Return how many tokens of text fit into max_length beside the special tokens.

    Raises:
        SqueezeError: none fits; the message has the smallest possible length.
    """
    room = max_length - len(frame)
    if room < 1:
        raise SqueezeError(
            f"a maximum length of {max_length} leaves no room beside {len(frame)} special tokens; "
            f"give at least {len(frame) + 1}"
        )
    return room
