"""One article of a source, and the text of its parts."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from biosqueeze.corpora.sections import SECTIONS, Section, Sections

Kind = Literal["pubmed", "pmc", "bioc", "text"]
KINDS: tuple[Kind, ...] = ("pubmed", "pmc", "bioc", "text")
ArticlePart = Literal["title", "abstract", "body"] | Section
WHOLE: tuple[ArticlePart, ...] = ("title", "abstract", "body")
PARTS: tuple[ArticlePart, ...] = (*WHOLE, *SECTIONS)
"""What can be kept of an article; a section is a part of the body."""


@dataclass(frozen=True)
class Article:
    """An article; each text of a part is one section or paragraph, without line ends."""

    id: str
    """PMID, PMC id or the record's own id; empty where the source has none."""
    kind: Kind
    title: str = ""
    abstract: tuple[str, ...] = ()
    body: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    """Of three letters (eng), or a value that is no code; empty where the source gives none."""
    retracted: bool = False
    sections: tuple[Sections, ...] = ()
    """The sections that each text of the body belongs to; empty where the source does not tell."""
    has_parts: bool = True
    """False for plain text, which is kept whole."""
    lacking: tuple[str, ...] | None = field(default=None, compare=False)
    """The fields of a record that has not the one with the text; None for any other article."""

    def paragraphs(self, parts: Collection[ArticlePart]) -> list[str]:
        """Return the texts of some parts, in the order title, abstract, body; empty ones are left out."""
        if not self.has_parts:
            return list(self.body)
        texts = [self.title] if "title" in parts else []
        texts += self.abstract if "abstract" in parts else ()
        if "body" in parts:
            texts += self.body
        else:  # a source without sections gives none
            texts += (
                text for text, names in zip(self.body, self.sections, strict=False) if not names.isdisjoint(parts)
            )
        return [text for text in texts if text]


@dataclass(frozen=True)
class Deletion:
    """The id of an article that a later file of its source withdraws (PubMed's DeleteCitation)."""

    id: str
    kind: Kind


def fold(text: str) -> str:
    """Return the text with every run of white space as one space, and none outside."""
    return " ".join(text.split())
