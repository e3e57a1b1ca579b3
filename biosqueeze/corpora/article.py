"""One article of a source, and the text of its parts."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["pubmed", "pmc", "bioc", "text"]
KINDS: tuple[Kind, ...] = ("pubmed", "pmc", "bioc", "text")
Part = Literal["title", "abstract", "body"]
PARTS: tuple[Part, ...] = ("title", "abstract", "body")


@dataclass(frozen=True)
class Article:
    """An article; each text of a part is one section or paragraph, without line ends."""

    id: str
    """PMID, PMC id or the record's own id; empty where the source has none."""
    kind: Kind
    title: str = ""
    abstract: tuple[str, ...] = ()
    body: tuple[str, ...] = ()
    language: str = ""
    """Of three letters (eng), or empty where the source does not give it."""
    retracted: bool = False

    def paragraphs(self, parts: tuple[Part, ...]) -> list[str]:
        """Return the texts of some parts, in the order title, abstract, body; empty ones are left out."""
        texts: dict[Part, tuple[str, ...]] = {"title": (self.title,), "abstract": self.abstract, "body": self.body}
        return [text for part in PARTS if part in parts for text in texts[part] if text]


@dataclass(frozen=True)
class Deletion:
    """The id of an article that a later file of its source withdraws (PubMed's DeleteCitation)."""

    id: str
    kind: Kind


def fold(text: str) -> str:
    """Return the text with every run of white space as one space, and none outside."""
    return " ".join(text.split())
