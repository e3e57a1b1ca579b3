"""The two entities of a relation: their positions, and how they are written in a model's input.

The PubMedBERT study (section 5 and table 12; F1 on ChemProt and DDI) compares three ways to write them, and three
representations from which the relation is classified:

| entities | cls | mentions | entity-starts |
|---|---|---|---|
| dummy: replaced by their type | 77.24, 82.36 | 77.22, 82.08 | |
| original: unchanged | 50.52, 37.00 | 75.48, 79.42 | |
| markers: between marks | 77.72, 82.22 | 77.22, 82.42 | 77.58, 82.18 |

All of these are implemented, and no others: entity-starts is the opening marker of an entity, so it needs markers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

Entities = Literal["dummy", "markers", "original"]
Representation = Literal["cls", "mentions", "entity-starts", "cosine"]

FIRST, SECOND = 1, 2  # bits: text of both entities, where one is inside the other, has both (3)

# The same mark before and after the first entity and another for the second ("@ aspirin @ inhibits # COX-1 #"): single
# tokens of every vocabulary, so that no embedding is new and the checkpoint stays a stock one. Words such as [E1] would
# be split into four sub-words each. Zhou and Chen ("An Improved Baseline for Sentence-level Relation Extraction", 2022)
# find such marks as good as new marker tokens, or better.
MARKERS = {FIRST: "@", SECOND: "#"}


@dataclass(frozen=True)
class Mention:
    """An entity in a text."""

    start: int  # characters, end exclusive
    end: int
    type: str = ""  # in the words of the data, such as CHEMICAL


@dataclass(frozen=True)
class Relation:
    """A sentence with two entities, and the label of their relation."""

    text: str  # without the marks of the entities in the data
    mentions: tuple[Mention, Mention] | None  # None if unknown; the same twice for a joint entity
    gold: str | None = None  # None if unlabelled
    replaced: bool = False  # whether the data have @TYPE$ in place of the entities
    where: str = ""  # file and line
    document_id: str = ""  # what distinguishes the document that the sentence is from; "" if that is unknown

    @property
    def document(self) -> str:
        """The document, or the text: other pairs of entities of it may be examples too."""
        return self.document_id or self.text


class PairKind(NamedTuple):
    """A kind of pair that may be related: the types of head and tail, and whether the head comes first in the text."""

    head: str
    tail: str
    is_in_order: bool


@dataclass(frozen=True)
class Passage:
    """A text with entities, and the pairs of them that may be related."""

    text: str
    pairs: tuple[Relation, ...]  # unlabelled; the text of each is its sentence
    starts: tuple[int, ...]  # of the sentence of each pair, in characters of the text


@dataclass(frozen=True)
class EntitySegment:
    """A part of a model's input text."""

    text: str
    inside: int = 0  # bits of the entities that it is part of
    opens: int = 0  # bit of the entity whose opening marker it is
    belongs: int = 0  # bits of the entities that need it: those that it is part of, or marks


def dummy_of(type_: str, number: int) -> str:
    """Return the dummy of an entity: BioBERT's @GENE$, or @ENTITY1$ and @ENTITY2$ if the data have no types.

    A tokenizer splits it into a few known sub-words (@, gene, $).
    """
    return f"@{type_.upper() or f'ENTITY{number}'}$"


def joint_dummy(first: str, second: str) -> str:
    """Return the dummy of two overlapping entities, such as BLURB's @DRUG-DRUG$."""
    names = (dummy_of(type_, number).strip("@$") for number, type_ in ((FIRST, first), (SECOND, second)))
    return f"@{'-'.join(names)}$"


def segments_of(relation: Relation, entities: Entities) -> tuple[EntitySegment, ...]:
    """Return the input text of a relation in segments; the unchanged text if the entities are unknown."""
    if relation.mentions is None:
        return (EntitySegment(relation.text),)
    if entities == "dummy" and not relation.replaced:
        return tuple(_dummified(relation.text, *relation.mentions))
    return tuple(_cut_up(relation.text, *relation.mentions, marked=entities == "markers"))


def overlap(first: Mention, second: Mention) -> bool:
    """Return whether two entities share a character."""
    return first.start < second.end and second.start < first.end


def _dummified(text: str, first: Mention, second: Mention) -> Iterable[EntitySegment]:
    if overlap(first, second):
        both = FIRST | SECOND
        yield EntitySegment(text[: min(first.start, second.start)])
        yield EntitySegment(joint_dummy(first.type, second.type), inside=both, belongs=both)
        yield EntitySegment(text[max(first.end, second.end) :])
        return
    end = 0
    for mention, bit in sorted(((first, FIRST), (second, SECOND)), key=lambda pair: pair[0].start):
        yield EntitySegment(text[end : mention.start])
        yield EntitySegment(dummy_of(mention.type, bit), inside=bit, belongs=bit)
        end = mention.end
    yield EntitySegment(text[end:])


def _cut_up(text: str, first: Mention, second: Mention, *, marked: bool) -> Iterable[EntitySegment]:
    """Yield the text cut at the borders of entities, with markers there if wanted; entities may overlap."""
    numbered = ((first, FIRST), (second, SECOND))
    cuts = sorted({0, len(text), first.start, first.end, second.start, second.end})
    for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True):
        if marked:
            yield from _markers_at(start, numbered)
        bits = sum(bit for mention, bit in numbered if mention.start <= start < mention.end)
        yield EntitySegment(text[start:end], inside=bits, belongs=bits)


def _markers_at(offset: int, numbered: Iterable[tuple[Mention, int]]) -> Iterable[EntitySegment]:
    """Yield the markers at one offset: closing ones, inner entity first, then opening ones, outer entity first."""
    closing = [(mention, bit) for mention, bit in numbered if mention.end == offset]
    for _, bit in sorted(closing, key=lambda pair: (-pair[0].start, -pair[1])):
        yield EntitySegment(" ")
        yield EntitySegment(MARKERS[bit], belongs=bit)
    opening = [(mention, bit) for mention, bit in numbered if mention.start == offset]
    for _, bit in sorted(opening, key=lambda pair: (-pair[0].end, pair[1])):
        yield EntitySegment(MARKERS[bit], opens=bit, belongs=bit)
        yield EntitySegment(" ")
