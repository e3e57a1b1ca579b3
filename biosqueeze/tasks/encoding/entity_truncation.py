"""Sub-words of texts with two entities, and the truncation of long texts around the two entities."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.text.blocks import Ids
from biosqueeze.data.tokenizer import Tokenizer
from biosqueeze.errors import SqueezeError
from biosqueeze.tasks.encoding.entities import FIRST, SECOND, EntitySegment, Representation

TEXTS_AT_ONCE = 1024
PieceRange = tuple[int, int]  # sub-words, end exclusive


@dataclass(frozen=True)
class EntityPieces:
    """The sub-words of a text, and which of them are those of the two entities."""

    ids: Ids  # (pieces,) without special tokens
    entities: Ids  # (pieces,) bits of the entities that a sub-word represents
    first: PieceRange | None  # the first entity with its markers; None if the entities are unknown
    second: PieceRange | None


@dataclass(frozen=True)
class TruncatedText:
    """The sub-words of a text that fit into a window."""

    indices: Ids  # (pieces that fit,) rising
    cut: str  # where text was cut: none, ends (beyond the entities), middle (between the entities), end


def entity_pieces(
    texts: Sequence[tuple[EntitySegment, ...]], representation: Representation, tokenizer: Tokenizer
) -> Iterator[EntityPieces]:
    """Tokenise texts, and find the entities among the sub-words.

    Args:
        texts: each as returned by `entities.segments_of`.
        representation: decides which sub-words `EntityPieces.entities` marks.
        tokenizer: a fast tokenizer, for character offsets.
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
        for segments, ids, offsets in zip(batch, encoded["input_ids"], encoded["offset_mapping"], strict=True):
            yield _pieces(segments, ids, np.array(offsets, dtype=np.int64).reshape(-1, 2), representation)


def _pieces(
    segments: Sequence[EntitySegment], ids: list[int], offsets: Ids, representation: Representation
) -> EntityPieces:
    entities = np.zeros(len(ids), dtype=np.int64)
    if representation != "cls":
        bits = [segment.opens if representation == "entity-starts" else segment.inside for segment in segments]
        entities = _bits_of_pieces(segments, bits, offsets)
    needed = _bits_of_pieces(segments, [segment.belongs for segment in segments], offsets)
    return EntityPieces(np.array(ids, dtype=np.int64), entities, _range_of(needed, FIRST), _range_of(needed, SECOND))


def _bits_of_pieces(segments: Sequence[EntitySegment], bits: Sequence[int], offsets: Ids) -> Ids:
    """Return for every sub-word the bits of the segments with which it shares a character other than white space.

    A byte-level tokenizer may include the space before a word in its first sub-word.

    Args:
        segments: of one text.
        bits: of each segment.
        offsets: (pieces, 2) characters of the text at which each sub-word starts and ends.
    """
    lengths = [len(segment.text) for segment in segments]
    text = "".join(segment.text for segment in segments)
    of_characters = np.repeat(np.array(bits, dtype=np.int64), lengths)
    of_characters[[character.isspace() for character in text]] = 0
    of_pieces = np.zeros(len(offsets), dtype=np.int64)
    for bit in (FIRST, SECOND):
        before = np.concatenate([[0], np.cumsum(of_characters & bit != 0)])  # (characters + 1,)
        of_pieces |= np.where(before[offsets[:, 1]] > before[offsets[:, 0]], bit, 0)
    return of_pieces


def _range_of(bits: Ids, bit: int) -> PieceRange | None:
    """Return the first sub-word with a bit, and the one after the last; None without any."""
    indices = np.flatnonzero(bits & bit)
    return (int(indices[0]), int(indices[-1]) + 1) if len(indices) else None


def truncate_around_entities(pieces: EntityPieces, room: int) -> TruncatedText:
    """Truncate a text to at most `room` sub-words.

    Both entities are kept: in the middle of a window that contains them, or else with text between them cut out. An
    entity that would leave no room for the other keeps its beginning.

    Raises:
        SqueezeError: there is no room for both.
    """
    count = len(pieces.ids)
    if count <= room:
        return TruncatedText(np.arange(count), "none")
    if pieces.first is None or pieces.second is None:
        return TruncatedText(np.arange(room), "end")
    if room < 2:
        raise SqueezeError(
            "a maximum length with room for one token cannot hold two entities; give a larger --max-length"
        )
    (start, end), (other_start, other_end) = sorted((pieces.first, pieces.second))
    last = max(end, other_end)
    if last - start <= room:
        begin = min(max(0, start - (room - (last - start)) // 2), count - room)
        return TruncatedText(np.arange(begin, begin + room), "ends")
    left = _room_of_first(end - start, other_end - other_start, room)
    right = room - left
    begin = other_start if other_end - other_start > right else last - right
    if other_start < end:  # one entity is inside the other, and together they are too long
        begin = other_start
    indices = np.union1d(np.arange(start, start + left), np.arange(begin, min(begin + right, last)))
    return TruncatedText(indices, "middle")


def _room_of_first(first: int, second: int, room: int) -> int:
    """Return how many of `room` sub-words the first entity and the text after it get: half, or what entities need.

    Args:
        first: sub-words of the first entity.
        second: sub-words of the second entity.
        room: sub-words of both together.
    """
    half = (room + 1) // 2
    if first + second <= room:
        return min(max(half, first), room - second)
    return min(first, max(half, room - second))


def unknown_texts(texts: Sequence[str], tokenizer: Tokenizer) -> list[str]:
    """Return those of some dummies or markers that become an unknown token."""
    if not texts or tokenizer.unk_token_id is None:
        return []
    encoded: NDArray[np.object_] = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    return [text for text, ids in zip(texts, encoded, strict=True) if tokenizer.unk_token_id in ids]
