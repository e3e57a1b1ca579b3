"""Tagging schemes: how tags stand for entities, and the conversion between schemes. Pure functions.

| scheme | an entity of one word | of three words | two entities of a type side by side |
|---|---|---|---|
| IO | I | I I I | become one: IO cannot separate them |
| BIO (IOB2) | B | B I I | B I B I |
| BIOUL (with other letters BIOES, IOBES) | U (S) | B I L (E) | B L U |
| IOB1 (files only) | I | I I I | I I B I |

Training on IO loses every border between adjacent entities of one type: of each such run only one entity can be
found, with the wrong extent. An IO model with a correct tag for every word reaches F1 0.992 on the test split of
NCBI-disease, 0.982 on BC2GM, 0.997 on BC5CDR-chem, 0.991 on BC5CDR-disease and 0.986 on JNLPBA. The
other schemes lose nothing.

The PubMedBERT study (section 5, table 11) compares IO, BIO and BIOUL. Its text swaps the meanings of U and L;
here, as elsewhere, U is a unit of one word and L the last word of several.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

Scheme = Literal["BIO", "IO", "BIOUL"]

OUTSIDE = "O"
LETTERS = "BILUES"
_SPELLINGS = {"E": "L", "S": "U"}


class EntitySpan(NamedTuple):
    """An entity: words `start` to `end`, `end` exclusive."""

    start: int
    end: int
    type: str  # "" if tags have none


def split_tag(tag: str) -> tuple[str, str]:
    """Return letter and type of a tag; E and S become L and U."""
    letter, _, kind = tag.partition("-")
    return _SPELLINGS.get(letter, letter), kind


def is_tag(tag: str) -> bool:
    """Return whether a tag is O, or a letter of some scheme, alone or followed by a hyphen and a type."""
    letter, dash, kind = tag.partition("-")
    return tag == OUTSIDE or (letter in LETTERS and len(letter) == 1 and bool(kind) == bool(dash))


def begins(before: str, tag: str) -> bool:
    """Return whether an entity begins at a tag after `before`: at a B or U, or at an I or L that continues nothing."""
    letter, kind = split_tag(tag)
    earlier, earlier_kind = split_tag(before)
    if letter == OUTSIDE:
        return False
    return letter in "BU" or earlier in (OUTSIDE, "L", "U") or earlier_kind != kind


def spans_of(tags: Iterable[str]) -> list[EntitySpan]:
    """Return the entities of tags in any scheme, as leniently as conlleval and seqeval's default mode.

    Every sequence is valid: an I or L that continues nothing begins an entity.
    """
    spans: list[EntitySpan] = []
    start, before = 0, OUTSIDE
    for word, tag in enumerate((*tags, OUTSIDE)):
        starts = begins(before, tag)
        if before != OUTSIDE and (starts or tag == OUTSIDE):
            spans.append(EntitySpan(start, word, split_tag(before)[1]))
        if starts:
            start = word
        before = tag
    return spans


def tags_of(spans: Iterable[EntitySpan], length: int, scheme: str) -> list[str]:
    """Return the tags of `length` words for entities that do not overlap.

    Args:
        spans: the entities.
        length: number of words.
        scheme: BIO, IO or BIOUL.
    """
    tags = [OUTSIDE] * length
    for start, end, kind in spans:
        for word in range(start, end):
            tags[word] = join_tag(_letter(scheme, first=word == start, last=word == end - 1), kind)
    return tags


def join_tag(letter: str, kind: str) -> str:
    """Return the tag of a letter and a type, which may be empty."""
    return f"{letter}-{kind}" if kind else letter


def convert(tags: Sequence[str], scheme: str) -> list[str]:
    """Return tags in another scheme."""
    return tags_of(spans_of(tags), len(tags), scheme)


def keep_types(tags: Sequence[str], types: Sequence[str]) -> Sequence[str]:
    """Return tags with O for those of other types; an empty `types` keeps all."""
    return [tag if split_tag(tag)[1] in types else OUTSIDE for tag in tags] if types else tags


def labels_of(types: Iterable[str], scheme: str) -> tuple[str, ...]:
    """Return all tags of a scheme for these types: O, then the others in alphabetical order."""
    letters = {"IO": "I", "BIO": "BI", "BIOUL": "BILU"}[scheme]
    return (OUTSIDE, *sorted(join_tag(letter, kind) for letter in letters for kind in types))


def types_of(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the types of some tags, sorted; "" for tags without one."""
    return tuple(sorted({split_tag(tag)[1] for tag in tags if tag != OUTSIDE}))


def canonical_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Return labels, those of a tagger with the letters L and U for E and S, as `split_tag` reads them."""
    names = tuple(labels)
    return tuple(join_tag(*split_tag(name)) for name in names) if all(map(is_tag, names)) else names


def scheme_of(labels: Iterable[str]) -> Scheme:
    """Return the scheme of a model's labels, or of any set of tags except those of IOB1."""
    letters = {split_tag(label)[0] for label in labels}
    if letters & {"L", "U"}:
        return "BIOUL"
    return "BIO" if "B" in letters else "IO"


def detect_scheme(sentences: Iterable[Sequence[str]]) -> str:
    """Return the scheme in which sentences are tagged: BIO, IO, BIOUL or IOB1.

    IOB1 has B only where an entity directly follows another of its type. Tags are taken for IOB1 if most entities begin
    with I, also where some begin with B elsewhere, as those of several words in SciBERT's BC5CDR; otherwise they are
    BIO, where an I that begins an entity is an error.
    """
    letters: set[str] = set()
    begun = {"B": 0, "I": 0}  # entities by their first letter
    for tags in sentences:
        letters.update(split_tag(tag)[0] for tag in set(tags))
        for before, tag in zip((OUTSIDE, *tags), tags, strict=False):
            if tag[0] in begun:
                begun[tag[0]] += tag[0] == "B" or begins(before, tag)
    if letters & {"L", "U"}:
        return "BIOUL"
    if not begun["B"]:
        return "IO"
    return "IOB1" if begun["I"] > begun["B"] else "BIO"


def inside(tag: str) -> str:
    """Return the tag of the other sub-words of a word with this tag."""
    return OUTSIDE if tag == OUTSIDE else join_tag("I", split_tag(tag)[1])


def order_error(scheme: str, before: str, tag: str) -> str:
    """Return the error in the order of two tags, "" for none.

    Args:
        scheme: BIO or BIOUL; IO and IOB1 allow any order.
        before: the tag of the previous word, or O.
        tag: the tag, or O after the last word.

    Returns:
        "begin" if `tag` continues nothing, "end" if the entity of `before` does not end.
    """
    letter, kind = split_tag(tag)
    earlier, earlier_kind = split_tag(before)
    continues = letter in ("I", "L") and earlier in ("B", "I") and kind == earlier_kind
    if scheme == "BIOUL" and earlier in ("B", "I") and not continues:
        return "end"
    return "begin" if scheme in ("BIO", "BIOUL") and letter in ("I", "L") and not continues else ""


def _letter(scheme: str, *, first: bool, last: bool) -> str:
    if scheme == "IO":
        return "I"
    if scheme == "BIOUL" and last:
        return "U" if first else "L"
    return "B" if first else "I"
