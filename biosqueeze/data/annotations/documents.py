"""Texts with annotated spans, read from PubTator or BioC, and their words and sentences."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from biosqueeze.data.annotations.annotated import Annotation, Document
from biosqueeze.data.annotations.bioc import read_bioc
from biosqueeze.data.annotations.pubtator import TEXT_LINE, parse_pubtator, pubtator_lines, read_pubtator
from biosqueeze.data.annotations.tagging import (
    TaggedSentence,
    TypeRanks,
    by_rank,
    tag_document,
    tag_documents,
    without_overlaps,
)
from biosqueeze.data.lines import read_beginning
from biosqueeze.data.sentences import sentences_of, words_of
from biosqueeze.errors import SqueezeError

__all__ = [
    "Annotation",
    "Document",
    "TaggedSentence",
    "TypeRanks",
    "by_rank",
    "detect_format",
    "format_of_text",
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

DocumentFormat = Literal["pubtator", "bioc"]
_BIOC_KEY = re.compile(r'"(documents|passages|PubTator3)"\s*:')


def read_documents(path: Path) -> Iterator[Document]:
    """Stream the documents of a PubTator or BioC file; its format is detected.

    Raises:
        SqueezeError: it has neither format, or is damaged.
    """
    kind = detect_format(path)
    if kind is None:
        raise SqueezeError(
            f"{path} is neither PubTator (ID|t|TITLE in its first line) nor BioC (XML, or JSON with documents "
            "and passages); convert it to one of these"
        )
    return read_pubtator(path) if kind == "pubtator" else read_bioc(path)


def detect_format(path: Path) -> DocumentFormat | None:
    """Return the format that the beginning of a file has, or None if it is another one.

    Raises:
        SqueezeError: it cannot be read.
    """
    return format_of_text(path, read_beginning(path))


def format_of_text(path: Path, text: str) -> DocumentFormat | None:
    """Return the format of a file from the beginning of its text, or None if it is another one."""
    kind = (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()
    if kind == ".xml":
        return "bioc"
    if kind == ".json":
        return "bioc" if _BIOC_KEY.search(text) else None
    first = next((line for line in text.split("\n") if line.strip()), "")
    return "pubtator" if TEXT_LINE.match(first.lstrip()) else None
