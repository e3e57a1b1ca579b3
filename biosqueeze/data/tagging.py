"""From annotated text to tagged words, with no entity lost but those that lie within or across another."""

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from biosqueeze.data.annotated import Annotation, Document
from biosqueeze.data.sentences import Span, sentences_of, words_of
from biosqueeze.progress import note


class TaggedSentence(NamedTuple):
    """One sentence: its words, the BIO tag of each, and where each stands in the document."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    offsets: tuple[Span, ...]


def tag_documents(documents: Iterable[Document], types: Collection[str] = ()) -> list[list[TaggedSentence]]:
    """The tagged sentences of each document; says how many annotations were dropped for overlapping others.

    Args:
        documents: annotated texts.
        types: of the annotations to keep; none means all.
    """
    made = []
    kept = dropped = 0
    for document in documents:
        wanted = _wanted(document, types)
        made.append(tag_document(document, types))
        here = sum(tag[0] == "B" for sentence in made[-1] for tag in sentence.tags)
        kept, dropped = kept + here, dropped + len(wanted) - here
    if dropped:
        note(f"{dropped:,} of {kept + dropped:,} annotations lie within or across longer ones and were dropped")
    return made


def tag_document(document: Document, types: Collection[str] = ()) -> list[TaggedSentence]:
    """The sentences of a document with BIO tags.

    A word in which an annotation begins or ends is split there, and sentences across whose border one
    stretches are joined, so that every annotation is whole words of one sentence. Of annotations that
    overlap, the longest is kept.

    Args:
        document: a text with annotations.
        types: of the annotations to keep; none means all.

    Returns:
        one for each sentence that has a word.
    """
    kept, _ = without_overlaps(_wanted(document, types))
    cuts = {place for one in kept for place in (one.start, one.end)}
    words = [part for word in words_of(document.text) for part in _split(word, cuts)]
    tags = _tags(words, kept)
    made, place = [], 0
    for _, end in _joined(sentences_of(document.text), kept):
        begin = place
        while place < len(words) and words[place][0] < end:
            place += 1
        spans = tuple(words[begin:place])
        made.append(TaggedSentence(tuple(document.text[a:b] for a, b in spans), tuple(tags[begin:place]), spans))
    return made


def without_overlaps(annotations: Sequence[Annotation]) -> tuple[list[Annotation], int]:
    """Keep the longest of annotations that overlap (of equal ones the first), in text order.

    Returns:
        those that stay, and how many were dropped.
    """
    kept: list[Annotation] = []
    for one in sorted(annotations, key=lambda one: (one.start - one.end, one.start)):
        if all(one.end <= other.start or other.end <= one.start for other in kept):
            kept.append(one)
    return sorted(kept, key=lambda one: one.start), len(annotations) - len(kept)


def _wanted(document: Document, types: Collection[str]) -> list[Annotation]:
    return [one for one in document.annotations if not types or one.type in types]


def _split(word: Span, cuts: Collection[int]) -> list[Span]:
    start, end = word
    places = [start, *(place for place in range(start + 1, end) if place in cuts), end]
    return list(pairwise(places))


def _tags(words: Sequence[Span], kept: Sequence[Annotation]) -> list[str]:
    """The tag of each word; both the words and the annotations are in text order."""
    tags = ["O"] * len(words)
    place = 0
    for one in kept:
        while place < len(words) and words[place][0] < one.start:
            place += 1
        prefix = "B"
        while place < len(words) and words[place][0] < one.end:
            tags[place] = f"{prefix}-{one.type}"
            prefix = "I"
            place += 1
    return tags


def _joined(sentences: Sequence[Span], kept: Sequence[Annotation]) -> list[Span]:
    joined: list[Span] = []
    for start, end in sentences:
        if joined and any(one.start < joined[-1][1] and start < one.end for one in kept):
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined
