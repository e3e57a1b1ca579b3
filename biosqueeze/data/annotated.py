"""A text with annotated spans, and what a reader of such texts found and has to say."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from biosqueeze.errors import SqueezeError
from biosqueeze.progress import note


@dataclass(frozen=True)
class Annotation:
    """A stretch of a text and what it is."""

    start: int  # characters from the beginning of the text
    end: int  # behind the last character
    type: str
    text: str  # what stands there
    id: str = ""  # of the concept, such as D003924


@dataclass(frozen=True)
class Document:
    """A text with its annotations in the order of its file."""

    id: str
    text: str
    annotations: tuple[Annotation, ...] = ()
    where: str = ""  # file and line


def placed(document: Document, given: Annotation, where: str) -> Annotation:
    """An annotation as it stands in the text: white space at its ends cut off, its text the document's own.

    White space may differ between the text that was given and the one in the document, as it does in
    published corpora; anything else may not.

    Args:
        document: whose text it is.
        given: offsets, and the text that the file says stands there.
        where: file and line, for the error.

    Raises:
        SqueezeError: it reaches beyond the text, or another text stands there.
    """
    text = document.text
    if not 0 <= given.start < given.end <= len(text):
        raise SqueezeError(
            f"{where}: {given.text!r} is said to be at {given.start}-{given.end}, but the text of {document.id} "
            f"has {len(text)} characters{_instead(text, given)}; correct the offsets"
        )
    there = text[given.start : given.end]
    if not there.strip() or there.split() != given.text.split():
        raise SqueezeError(
            f"{where}: {given.text!r} is said to be at {given.start}-{given.end} of {document.id}, but there "
            f"stands {there!r}{_instead(text, given)}; correct the offsets or the text"
        )
    start = given.start + len(there) - len(there.lstrip())
    return Annotation(start, start + len(there.strip()), given.type, there.strip(), given.id)


def _instead(text: str, given: Annotation) -> str:
    """Where the text of an annotation stands nearest to its offset, for an error."""
    wanted = given.text.strip()
    places = list(_places(text, wanted)) if wanted else []
    if not places:
        return ""
    nearest = min(places, key=lambda place: abs(place - given.start))
    return f" ({wanted!r} is at {nearest}-{nearest + len(wanted)})"


def _places(text: str, wanted: str) -> Iterator[int]:
    place = text.find(wanted)
    while place >= 0:
        yield place
        place = text.find(wanted, place + 1)


@dataclass
class Census:
    """What a reader met on its way: counts to say at the end, and the documents it has seen."""

    source: str
    counts: Counter[str] = field(default_factory=lambda: Counter(documents=0, annotations=0))
    _seen: dict[str, tuple[str, int]] = field(default_factory=dict)  # id -> where, hash of the content

    def is_new(self, document: Document) -> bool:
        """Count a document, and say whether it is to be kept: a copy that is equal in all is not.

        Raises:
            SqueezeError: another document had its id.
        """
        content = hash((document.text, document.annotations))
        where, known = self._seen.setdefault(document.id, (document.where, content))
        if where == document.where:
            self.counts["documents"] += 1
            self.counts["annotations"] += len(document.annotations)
            return True
        if known != content:
            raise SqueezeError(
                f"{document.where}: the document {document.id!r} stands already at {where}, with other content; "
                "remove one of the two, or give it another id"
            )
        self.counts["documents that stood there twice, kept once"] += 1
        return False

    def say(self) -> None:
        """Say the counts.

        Raises:
            SqueezeError: there was no document.
        """
        if not self.counts["documents"]:
            raise SqueezeError(f"{self.source} is empty: it holds no document; check that it was written in full")
        note(f"{self.source}: {'; '.join(f'{count:,} {what}' for what, count in self.counts.items())}")
