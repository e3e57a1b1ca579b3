"""A corpus as token ids: each line is one block; a long line is cut into several, so that nothing is lost."""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from biosqueeze.errors import SqueezeError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Ids = NDArray[np.int64]
LINES_AT_ONCE = 1024


class Advancing(Protocol):
    """What `progress.track` gives: something to tell how much is done."""

    def advance(self, amount: int = 1) -> None:
        """Add to what is done."""


@dataclass(frozen=True)
class Frame:
    """The special tokens that a tokenizer puts before and after one text."""

    before: Ids
    after: Ids

    def __len__(self) -> int:
        """How many special tokens one text costs."""
        return len(self.before) + len(self.after)

    def around(self, ids: NDArray[np.integer]) -> Ids:
        """The ids (n,) with their special tokens, (n + len(frame),)."""
        return np.concatenate([self.before, ids.astype(np.int64), self.after])

    @classmethod
    def of(cls, tokenizer: "PreTrainedTokenizerBase") -> "Frame":
        """Ask the tokenizer by framing one letter."""
        encoded = tokenizer("a", return_special_tokens_mask=True)
        ids = np.asarray(encoded["input_ids"], dtype=np.int64)
        text = np.flatnonzero(np.asarray(encoded["special_tokens_mask"]) == 0)
        return cls(ids[: text[0]], ids[text[-1] + 1 :])


@dataclass(frozen=True)
class Blocks:
    """Token ids of many blocks in one flat array; special tokens are added when a block is asked for."""

    flat: NDArray[np.int32]  # (tokens,) without special tokens
    offsets: Ids  # (blocks + 1,) where each block starts in flat
    frame: Frame

    def __len__(self) -> int:
        """How many blocks there are."""
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Ids:
        """Ids of one block with its special tokens, int64 (length,)."""
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        return self.frame.around(self.flat[self.offsets[index] : self.offsets[index + 1]])

    @cached_property
    def lengths(self) -> Ids:
        """Length of each block with its special tokens, (blocks,)."""
        return np.diff(self.offsets) + len(self.frame)


def encode_corpus(
    lines: Iterable[str],
    tokenizer: "PreTrainedTokenizerBase",
    max_length: int,
    progress: Advancing | None = None,
) -> Blocks:
    """Tokenise a corpus; the lines are streamed, the ids stay (4 bytes each).

    Args:
        lines: one sentence or document each.
        tokenizer: a fast tokenizer.
        max_length: tokens in a block, special tokens included; a longer line becomes several blocks.
        progress: told how many lines are done.

    Raises:
        SqueezeError: max_length leaves no room beside the special tokens, or no line gave a token.
    """
    frame = Frame.of(tokenizer)
    room = room_within(max_length, frame)
    flat, sizes = array("i"), array("i")
    for batch in _batches(lines):
        encoded = tokenizer(
            batch,
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        for ids in encoded["input_ids"]:
            flat.extend(ids)
            sizes.extend(min(room, len(ids) - start) for start in range(0, len(ids), room))
        if progress is not None:
            progress.advance(len(batch))
    if not sizes:
        raise SqueezeError("no line of the corpus gives a single token; check that it is text the tokenizer knows")
    offsets = np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))])
    return Blocks(np.asarray(flat, dtype=np.int32), offsets, frame)


def room_within(max_length: int, frame: Frame) -> int:
    """How many tokens of text fit beside the special ones.

    Raises:
        SqueezeError: none.
    """
    room = max_length - len(frame)
    if room < 1:
        raise SqueezeError(
            f"a maximum length of {max_length} leaves no room beside {len(frame)} special tokens; "
            f"give at least {len(frame) + 1}"
        )
    return room


def _batches(lines: Iterable[str]) -> Iterator[list[str]]:
    stream = iter(lines)
    while batch := list(islice(stream, LINES_AT_ONCE)):
        yield batch
