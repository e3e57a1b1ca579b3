"""Texts with annotated spans, the check of their offsets, and the counts that a reader of them reports."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from unicodedata import normalize

from biosqueeze.errors import SqueezeError
from biosqueeze.progress import note, warn


@dataclass(frozen=True)
class Annotation:
    """A span of a text with its type."""

    start: int  # characters from the beginning of the text
    end: int  # exclusive
    type: str
    text: str  # the characters from start to end
    id: str = ""  # of the concept, such as D003924


@dataclass(frozen=True)
class AnnotatedRelation:
    """A relation from one annotation of a document to another."""

    type: str
    head: Annotation
    tail: Annotation


@dataclass(frozen=True)
class Document:
    """A text with its annotations, in the order of its file."""

    id: str
    text: str
    annotations: tuple[Annotation, ...] = ()
    where: str = ""  # file and line, for error messages
    relations: tuple[AnnotatedRelation, ...] = ()
    is_sentence: bool = False  # whether the source says that the text is one sentence
    part_of: str = ""  # what distinguishes the document that a sentence is from, where the source says it


def align_annotation(document: Document, annotation: Annotation, where: str) -> Annotation:
    """Check an annotation against the text of its document, and trim white space from its ends.

    The annotation's text may differ from the document in white space, as in published corpora, and in how accents are
    encoded (NFC or NFD), and in nothing else.

    Args:
        document: the annotated text.
        annotation: offsets and text as the file gives them.
        where: file and line, for error messages.

    Returns:
        The annotation without outer white space; its text is copied from the document.

    Raises:
        SqueezeError: it reaches beyond the text, or the text at its offsets is another one.
    """
    text = document.text
    if not 0 <= annotation.start < annotation.end <= len(text):
        raise SqueezeError(
            f"{where}: {annotation.text!r} has the offsets {annotation.start}-{annotation.end}, but the text of "
            f"{document.id} has {len(text)} characters{_nearest_offsets(text, annotation)}; correct the offsets"
        )
    covered = text[annotation.start : annotation.end]
    if not covered.strip() or _words(covered) != _words(annotation.text):
        raise SqueezeError(
            f"{where}: {annotation.text!r} has the offsets {annotation.start}-{annotation.end} of {document.id}, but "
            f"the text there is {covered!r}{_nearest_offsets(text, annotation)}; correct the offsets or the text"
        )
    start = annotation.start + len(covered) - len(covered.lstrip())
    return Annotation(start, start + len(covered.strip()), annotation.type, covered.strip(), annotation.id)


def check_pieces(text: str, spans: Sequence[tuple[int, int]], covered: str, where: str) -> None:
    """Check the pieces of a discontinuous annotation against the text of its document; see `align_annotation`.

    Args:
        text: of the document.
        spans: start and end of each piece.
        covered: the annotation's text as the file gives it.
        where: file and line, for the error message.

    Raises:
        SqueezeError: the text at the offsets is another one.
    """
    if not fits(text, spans, covered):
        pieces = [text[start:end] for start, end in spans]
        raise SqueezeError(
            f"{where}: {covered!r} has the offsets {', '.join(f'{start}-{end}' for start, end in spans)}, but the "
            f"texts there are {', '.join(map(repr, pieces))}; correct the offsets or the text"
        )


def fits(text: str, spans: Sequence[tuple[int, int]], covered: str) -> bool:
    """Return whether an annotation's text is that of its pieces, in their order or the text's, or all that they span.

    White space, and dots between the pieces, may differ.
    """
    whole = (min(start for start, _ in spans), max(end for _, end in spans))
    readings = (spans, sorted(spans), [whole])
    return any(_letters("".join(text[start:end] for start, end in each)) == _letters(covered) for each in readings)


def _letters(text: str) -> str:
    return "".join(_words(text.replace("...", " ")))


def linked_relations(
    relations: Iterable[tuple[str, Sequence[str]]], annotations: Mapping[str, Annotation], counts: Counter[str]
) -> tuple[AnnotatedRelation, ...]:
    """Return the relations between two annotations, and count them and the others.

    Args:
        relations: type, and the name of each argument, the head first.
        annotations: by name.
        counts: of what a reader met.
    """
    linked = []
    for name, arguments in relations:
        found = [annotations[each] for each in arguments if each in annotations]
        if len(arguments) == len(found) == 2:
            linked.append(AnnotatedRelation(name, *found))
        else:
            counts["relations that are not between two annotations skipped"] += 1
    if linked:
        counts["relations"] += len(linked)
    return tuple(linked)


def _words(text: str) -> list[str]:
    return normalize("NFC", text).split()


def _nearest_offsets(text: str, annotation: Annotation) -> str:
    """Return the offsets of the occurrence that is nearest to those of the annotation, for an error message."""
    wanted = annotation.text.strip()
    starts = list(_occurrences(text, wanted)) if wanted else []
    if not starts:
        return ""
    nearest = min(starts, key=lambda start: abs(start - annotation.start))
    return f" ({wanted!r} is at {nearest}-{nearest + len(wanted)})"


def _occurrences(text: str, wanted: str) -> Iterator[int]:
    start = text.find(wanted)
    while start >= 0:
        yield start
        start = text.find(wanted, start + 1)


@dataclass
class DocumentCounts:
    """Counts of what a reader met, and the ids of the documents that it has read."""

    source: str
    counts: Counter[str] = field(default_factory=lambda: Counter(documents=0, annotations=0))
    _seen: "dict[str, tuple[str, int, tuple[AnnotatedRelation, ...]]]" = field(default_factory=dict)
    """By id: where, hash of the text and the annotations, and the relations."""
    _lost: list[str] = field(default_factory=list)  # where copies are that have relations which the first has not

    def add(self, document: Document) -> bool:
        """Count a document; return False for a copy of an earlier one, which is to be dropped.

        A copy may have other relations: the DDI corpus publishes documents with and without them.

        Raises:
            SqueezeError: an earlier document has the same id and other content.
        """
        content = hash((document.text, document.annotations))
        if document.id not in self._seen:
            self._seen[document.id] = (document.where, content, document.relations)
            self.counts["documents"] += 1
            self.counts["annotations"] += len(document.annotations)
            return True
        first_where, first_content, relations = self._seen[document.id]
        if first_content != content:
            raise SqueezeError(
                f"{document.where}: the document id {document.id!r} is already used at {first_where}, with other "
                "content; remove one of the two documents, or give it another id"
            )
        self.counts["duplicate documents dropped"] += 1
        if not set(document.relations) <= set(relations):
            self._lost.append(document.where)
        return False

    def report(self) -> None:
        """Log the counts, and warn of dropped documents with relations that are not read.

        Raises:
            SqueezeError: no document was counted.
        """
        if not self.counts["documents"]:
            raise SqueezeError(f"{self.source} is empty: it holds no document; check that it was written in full")
        note(f"{self.source}: {'; '.join(f'{count:,} {what}' for what, count in self.counts.items())}")
        if self._lost:
            warn(
                f"{self.source}: {len(self._lost):,} of the duplicate documents have relations that the first has not, "
                f"which are not read (the first at {self._lost[0]}); put all relations of a document into one"
            )
