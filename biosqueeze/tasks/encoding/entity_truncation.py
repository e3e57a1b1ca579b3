"""Sub-words of texts with two entities, and what is kept of a text that is too long: what lies around the two."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.blocks import Ids
from biosqueeze.errors import SqueezeError
from biosqueeze.tasks.encoding.entities import FIRST, SECOND, Representation, Segment

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TEXTS_AT_ONCE = 1024
Span = tuple[int, int]  # pieces, end exclusive


@dataclass(frozen=True)
class Pieces:
    """A text in sub-words."""

    ids: Ids  # (pieces,) without special tokens
    entities: Ids  # (pieces,) bits of the entities whose representation is read here
    first: Span | None  # the first entity with its markers; None where the entities are not known
    second: Span | None


@dataclass(frozen=True)
class Kept:
    """The pieces of a text that fit."""

    places: Ids  # (kept,) rising
    how: str  # whole, around (the entities), middle (what stands between them is cut), end (it is cut off)


def pieces_of(
    texts: Sequence[tuple[Segment, ...]], representation: Representation, tokenizer: "PreTrainedTokenizerBase"
) -> Iterator[Pieces]:
    """Tokenise texts, and find the entities among the pieces.

    Args:
        texts: each as `_entities.shown` gives it.
        representation: what is read from the entities, and so is marked in `Pieces.entities`.
        tokenizer: a fast tokenizer, for the pieces' places in the text are needed.
    """
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        batch = texts[start : start + TEXTS_AT_ONCE]
        encoded = tokenizer(
            ["".join(segment.text for segment in segments) for segments in batch],
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            return_offsets_mapping=True,
            verbose=False,
        )
        for segments, ids, places in zip(batch, encoded["input_ids"], encoded["offset_mapping"], strict=True):
            yield _pieces(segments, ids, np.array(places, dtype=np.int64).reshape(-1, 2), representation)


def _pieces(segments: Sequence[Segment], ids: list[int], places: Ids, representation: Representation) -> Pieces:
    read = [segment.opens if representation == "entity-starts" else segment.inside for segment in segments]
    entities = np.zeros(len(ids), dtype=np.int64)
    if representation != "cls":
        entities = _bits(segments, read, places)
    shows = _bits(segments, [segment.shows for segment in segments], places)
    return Pieces(np.array(ids, dtype=np.int64), entities, _span(shows, FIRST), _span(shows, SECOND))


def _bits(segments: Sequence[Segment], bits: Sequence[int], places: Ids) -> Ids:
    """For every piece the bits of the segments that it shares a character with, other than white space.

    A byte-level tokenizer may count the space before a word as the piece's own.

    Args:
        segments: of one text.
        bits: of each segment.
        places: (pieces, 2) where each piece starts and ends in the text.
    """
    lengths = [len(segment.text) for segment in segments]
    text = "".join(segment.text for segment in segments)
    of_characters = np.repeat(np.array(bits, dtype=np.int64), lengths)
    of_characters[[character.isspace() for character in text]] = 0
    found = np.zeros(len(places), dtype=np.int64)
    for bit in (FIRST, SECOND):
        before = np.concatenate([[0], np.cumsum(of_characters & bit != 0)])  # (characters + 1,)
        found |= np.where(before[places[:, 1]] > before[places[:, 0]], bit, 0)
    return found


def _span(shows: Ids, bit: int) -> Span | None:
    places = np.flatnonzero(shows & bit)
    return (int(places[0]), int(places[-1]) + 1) if len(places) else None


def fitted(pieces: Pieces, room: int) -> Kept:
    """What is kept of a text of which only `room` pieces fit.

    Both entities stay: in the middle of a window that holds them, or else with the middle between them cut out. An
    entity that would leave no place for the other keeps its beginning.

    Raises:
        SqueezeError: there is no room for both.
    """
    count = len(pieces.ids)
    if count <= room:
        return Kept(np.arange(count), "whole")
    if pieces.first is None or pieces.second is None:
        return Kept(np.arange(room), "end")
    if room < 2:
        raise SqueezeError(
            "a maximum length that holds one piece of text has no place for two entities; give --max-length more"
        )
    (start, end), (other_start, other_end) = sorted((pieces.first, pieces.second))
    last = max(end, other_end)
    if last - start <= room:
        begin = min(max(0, start - (room - (last - start)) // 2), count - room)
        return Kept(np.arange(begin, begin + room), "around")
    left = _share(end - start, other_end - other_start, room)
    right = room - left
    begin = other_start if other_end - other_start > right else last - right
    if other_start < end:  # one entity lies in the other, and the whole is too long
        begin = other_start
    return Kept(np.union1d(np.arange(start, start + left), np.arange(begin, min(begin + right, last))), "middle")


def _share(first: int, second: int, room: int) -> int:
    """How many of `room` pieces go to the first entity and what follows it: half, or what the entities need.

    Args:
        first: pieces of the first entity.
        second: pieces of the second.
        room: what they may have together.
    """
    half = (room + 1) // 2
    if first + second <= room:
        return min(max(half, first), room - second)
    return min(first, max(half, room - second))


def unknown_signs(signs: Sequence[str], tokenizer: "PreTrainedTokenizerBase") -> list[str]:
    """Those of some dummies or markers that the tokenizer's vocabulary cannot spell."""
    if not signs or tokenizer.unk_token_id is None:
        return []
    encoded: NDArray[np.object_] = tokenizer(list(signs), add_special_tokens=False, verbose=False)["input_ids"]
    return [sign for sign, ids in zip(signs, encoded, strict=True) if tokenizer.unk_token_id in ids]
