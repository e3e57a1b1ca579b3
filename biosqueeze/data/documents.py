"""Texts with annotated spans, read from PubTator or BioC, and their words and sentences."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from biosqueeze.data.annotated import Annotation, Document
from biosqueeze.data.bioc import read_bioc
from biosqueeze.data.lines import numbered_lines
from biosqueeze.data.pubtator import TEXT_LINE, parse_pubtator, pubtator_lines, read_pubtator
from biosqueeze.data.sentences import sentences_of, words_of
from biosqueeze.data.tagging import TaggedSentence, tag_document, tag_documents, without_overlaps
from biosqueeze.errors import SqueezeError

__all__ = [
    "SUFFIXES",
    "Annotation",
    "Document",
    "TaggedSentence",
    "detect_format",
    "parse_pubtator",
    "pubtator_lines",
    "read_bioc",
    "read_documents",
    "read_pubtator",
    "sentences_of",
    "tag_document",
    "tag_documents",
    "without_overlaps",
    "words_of",
]

SUFFIXES = (".pubtator", ".xml", ".json", ".txt")


def read_documents(path: Path) -> Iterator[Document]:
    """Stream the documents of a PubTator or BioC file, whichever it is.

    Raises:
        SqueezeError: it is neither, or it is damaged.
    """
    kind = detect_format(path)
    if kind is None:
        raise SqueezeError(
            f"{path} is neither PubTator (ID|t|TITLE in its first line) nor BioC (XML, or JSON with documents "
            "and passages); convert it to one of these"
        )
    return read_pubtator(path) if kind == "pubtator" else read_bioc(path)


def detect_format(path: Path) -> Literal["pubtator", "bioc"] | None:
    """Which format a file begins as, or None where it is neither.

    Raises:
        SqueezeError: it cannot be read.
    """
    kind = (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()
    if kind == ".xml":
        return "bioc"
    lines = numbered_lines(path)
    first = next((line.lstrip() for _, line in lines if line.strip()), "")
    if kind == ".json":
        rest = first + "".join(line for _, (_, line) in zip(range(200), lines, strict=False))
        return "bioc" if re.search(r'"(documents|passages|PubTator3)"\s*:', rest) else None
    return "pubtator" if TEXT_LINE.match(first) else None
