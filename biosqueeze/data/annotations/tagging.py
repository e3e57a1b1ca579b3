"""Convert annotated text to tagged words; of overlapping annotations only the longest is kept."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple

from biosqueeze.data.annotations.annotated import Annotation, Document
from biosqueeze.data.sentences import CharacterSpan, sentences_of, words_of
from biosqueeze.progress import note

TypeRanks = Mapping[str, int]  # by type in lower case


class TaggedSentence(NamedTuple):
    """One sentence: its words, the BIO tag of each, and the offsets of each in the document."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    offsets: tuple[CharacterSpan, ...]


def tag_documents(documents: Iterable[Document], types: Collection[str] = ()) -> list[list[TaggedSentence]]:
    """Return the tagged sentences of each document; log how many overlapping annotations were dropped.

    Args:
        documents: annotated texts.
        types: of the annotations to keep; () for all.
    """
    tagged = []
    kept = dropped = 0
    for document in documents:
        tagged.append(tag_document(document, types))
        entities = sum(tag[0] == "B" for sentence in tagged[-1] for tag in sentence.tags)
        kept, dropped = kept + entities, dropped + len(_of_types(document, types)) - entities
    if dropped:
        note(f"{dropped:,} of {kept + dropped:,} annotations lie within or across longer ones and were dropped")
    return tagged


def tag_document(document: Document, types: Collection[str] = ()) -> list[TaggedSentence]:
    """Return the sentences of a document with BIO tags.

    A word in which an annotation begins or ends is split there, and sentences with an annotation across their border
    are joined, so that every annotation is a run of whole words in one sentence. Of annotations that overlap, the
    longest is kept.

    Args:
        document: a text with annotations.
        types: of the annotations to keep; () for all.

    Returns:
        one for each sentence that has a word.
    """
    kept = without_overlaps(_of_types(document, types))
    boundaries = {offset for annotation in kept for offset in (annotation.start, annotation.end)}
    words = [part for word in words_of(document.text) for part in _split(word, boundaries)]
    tags = _tags(words, kept)
    sentences, index = [], 0
    for _, end in sentences_with(document.text, kept):
        begin = index
        while index < len(words) and words[index][0] < end:
            index += 1
        spans = tuple(words[begin:index])
        sentences.append(TaggedSentence(tuple(document.text[a:b] for a, b in spans), tuple(tags[begin:index]), spans))
    return sentences


def by_rank(document: Document, ranks: TypeRanks) -> Document:
    """Cut the annotations of a document where one of a higher rank lies over them, so that none overlap.

    Of equal ranks the longest is kept, as in `without_overlaps`. A type without a rank has the lowest.
    """
    kept = without_overlaps(document.annotations)
    if len(kept) == len(document.annotations):
        return document
    borders = sorted({offset for each in document.annotations for offset in (each.start, each.end)})
    covered = [(start, end, _highest(document.annotations, start, ranks)) for start, end in pairwise(borders)]
    parts = []
    for annotation, run in groupby(covered, key=lambda part: part[2]):
        pieces = list(run)
        start, end = pieces[0][0], pieces[-1][1]
        if annotation is not None:
            parts.append(replace(annotation, start=start, end=end, text=document.text[start:end]))
    return replace(document, annotations=tuple(parts))


def _highest(annotations: Sequence[Annotation], offset: int, ranks: TypeRanks) -> Annotation | None:
    """Return the annotation of the highest rank at an offset, None without any."""
    over = [each for each in annotations if each.start <= offset < each.end]
    return max(over, key=lambda each: (ranks.get(each.type.casefold(), -1), each.end - each.start), default=None)


def without_overlaps(annotations: Sequence[Annotation]) -> list[Annotation]:
    """Keep the longest of overlapping annotations (of equal ones the first), in text order."""
    kept: list[Annotation] = []
    covered = bytearray(max((each.end for each in annotations), default=0))  # whether each character is in a kept one
    for candidate in sorted(annotations, key=lambda each: (each.start - each.end, each.start)):
        if not any(covered[candidate.start : candidate.end]):
            covered[candidate.start : candidate.end] = b"\1" * (candidate.end - candidate.start)
            kept.append(candidate)
    return sorted(kept, key=lambda each: each.start)


def _of_types(document: Document, types: Collection[str]) -> list[Annotation]:
    return [annotation for annotation in document.annotations if not types or annotation.type in types]


def _split(word: CharacterSpan, boundaries: Collection[int]) -> list[CharacterSpan]:
    start, end = word
    offsets = [start, *(offset for offset in range(start + 1, end) if offset in boundaries), end]
    return list(pairwise(offsets))


def _tags(words: Sequence[CharacterSpan], annotations: Sequence[Annotation]) -> list[str]:
    """Return the tag of each word; both the words and the annotations are in text order."""
    tags = ["O"] * len(words)
    index = 0
    for annotation in annotations:
        while index < len(words) and words[index][0] < annotation.start:
            index += 1
        prefix = "B"
        while index < len(words) and words[index][0] < annotation.end:
            tags[index] = f"{prefix}-{annotation.type}"
            prefix = "I"
            index += 1
    return tags


def sentences_with(text: str, annotations: Sequence[Annotation]) -> list[CharacterSpan]:
    """Return the sentences of a text, of which those with an annotation across their border are joined.

    Args:
        text: in which the annotations are.
        annotations: by their starts; they may overlap.
    """
    starts = [annotation.start for annotation in annotations]
    ends = list(accumulate((annotation.end for annotation in annotations), max))
    joined: list[CharacterSpan] = []
    for start, end in sentences_of(text):
        before = bisect_left(starts, joined[-1][1]) if joined else 0  # annotations that begin before the border
        if before and start < ends[before - 1]:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined
