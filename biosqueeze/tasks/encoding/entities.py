"""The two entities of a relation: where they stand, and how they are shown to a model.

The PubMedBERT study (section 5 and table 12; F1 on ChemProt and DDI) shows them in three ways, and reads the relation
from three places:

| entities | cls | mentions | entity-starts |
|---|---|---|---|
| dummy: replaced by their type | 77.24, 82.36 | 77.22, 82.08 | |
| original: as they stand | 50.52, 37.00 | 75.48, 79.42 | |
| markers: between signs | 77.72, 82.22 | 77.22, 82.42 | 77.58, 82.18 |

Every one of these is there, and no other: where an entity starts is read from its opening marker, so it needs markers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Entities = Literal["dummy", "markers", "original"]
Representation = Literal["cls", "mentions", "entity-starts", "cosine"]

FIRST, SECOND = 1, 2  # bits: what belongs to both entities, as where one lies in the other, has both (3)

# One sign on either side of the first entity and another around the second ("@ aspirin @ inhibits # COX-1 #"): single
# tokens of every vocabulary, so that no embedding is new and the checkpoint stays a stock one. Words such as [E1] would
# be split into four pieces each. Zhou and Chen ("An Improved Baseline for Sentence-level Relation Extraction", 2022)
# find such signs as good as new marker tokens, or better.
MARKERS = {FIRST: "@", SECOND: "#"}


@dataclass(frozen=True)
class Mention:
    """An entity in a text."""

    start: int  # characters, end exclusive
    end: int
    type: str = ""  # as the data call it, such as CHEMICAL


@dataclass(frozen=True)
class Relation:
    """A sentence with two entities, and how they are related."""

    text: str  # without the signs that marked the entities in the data
    mentions: tuple[Mention, Mention] | None  # None where the text does not tell them; the same twice for a joint one
    gold: str | None = None  # None where it is not known
    replaced: bool = False  # the data have @TYPE$ in the place of the entities
    where: str = ""  # file and line


@dataclass(frozen=True)
class Segment:
    """A stretch of the text that a model reads."""

    text: str
    inside: int = 0  # bits of the entities that it belongs to
    opens: int = 0  # bit of the entity whose opening marker it is
    shows: int = 0  # bits of the entities that are not whole without it: inside, or a marker


def dummy_of(type_: str, number: int) -> str:
    """What replaces an entity: BioBERT's @GENE$, or @ENTITY1$ and @ENTITY2$ where the data have no types.

    A tokenizer splits it into a few known pieces (@, gene, $).
    """
    return f"@{type_.upper() or f'ENTITY{number}'}$"


def joint_dummy(first: str, second: str) -> str:
    """What replaces two entities that overlap, as BLURB's @DRUG-DRUG$."""
    names = (dummy_of(type_, number).strip("@$") for number, type_ in ((FIRST, first), (SECOND, second)))
    return f"@{'-'.join(names)}$"


def shown(relation: Relation, entities: Entities) -> tuple[Segment, ...]:
    """The text that a model reads, in segments; where the entities are not known, the text as it is."""
    if relation.mentions is None:
        return (Segment(relation.text),)
    if entities == "dummy" and not relation.replaced:
        return tuple(_dummified(relation.text, *relation.mentions))
    return tuple(_cut_up(relation.text, *relation.mentions, marked=entities == "markers"))


def overlap(first: Mention, second: Mention) -> bool:
    """Whether two entities have a character in common."""
    return first.start < second.end and second.start < first.end


def _dummified(text: str, first: Mention, second: Mention) -> Iterable[Segment]:
    if overlap(first, second):
        both = FIRST | SECOND
        yield Segment(text[: min(first.start, second.start)])
        yield Segment(joint_dummy(first.type, second.type), inside=both, shows=both)
        yield Segment(text[max(first.end, second.end) :])
        return
    done = 0
    for mention, bit in sorted(((first, FIRST), (second, SECOND)), key=lambda pair: pair[0].start):
        yield Segment(text[done : mention.start])
        yield Segment(dummy_of(mention.type, bit), inside=bit, shows=bit)
        done = mention.end
    yield Segment(text[done:])


def _cut_up(text: str, first: Mention, second: Mention, *, marked: bool) -> Iterable[Segment]:
    """The text cut where an entity begins or ends, with markers there if wanted; entities may overlap."""
    numbered = ((first, FIRST), (second, SECOND))
    cuts = sorted({0, len(text), first.start, first.end, second.start, second.end})
    for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True):
        if marked:
            yield from _markers(start, numbered)
        bits = sum(bit for mention, bit in numbered if mention.start <= start < mention.end)
        yield Segment(text[start:end], inside=bits, shows=bits)


def _markers(place: int, numbered: Iterable[tuple[Mention, int]]) -> Iterable[Segment]:
    """The markers at one place: first what closes, the inner entity before the outer, then what opens, outer first."""
    closing = [(mention, bit) for mention, bit in numbered if mention.end == place]
    for _, bit in sorted(closing, key=lambda pair: (-pair[0].start, -pair[1])):
        yield Segment(" ")
        yield Segment(MARKERS[bit], shows=bit)
    opening = [(mention, bit) for mention, bit in numbered if mention.start == place]
    for _, bit in sorted(opening, key=lambda pair: (-pair[0].end, pair[1])):
        yield Segment(MARKERS[bit], opens=bit, shows=bit)
        yield Segment(" ")
