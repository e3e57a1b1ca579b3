"""Read the articles of PubMed XML: baseline and update files, and what E-utilities return."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from biosqueeze.corpora.article import Article, Deletion
from biosqueeze.corpora.languages import language_codes
from biosqueeze.corpora.xml_stream import stream_elements, text_of

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

_CITATION, _DELETION = "MedlineCitation", "DeleteCitation"
_NO_TITLE = "[Not Available]."
_RETRACTED = {"Retracted Publication"}


def read_pubmed(stream: BinaryIO) -> Iterator[Article | Deletion]:
    """Yield the articles of a PubMed XML file, and the ids that it withdraws.

    Each section of a structured abstract is one text. Abstracts in other languages (OtherAbstract) are not read. A
    title that PubMed translated is without its brackets.

    Raises:
        DamagedSourceError: the XML is cut short or not well-formed.
    """
    for element in stream_elements(stream, (_CITATION, _DELETION)):
        if element.tag == _DELETION:
            yield from (Deletion(text_of(pmid), "pubmed") for pmid in element.iterfind("PMID"))
        else:
            yield _article(element)


def _article(citation: "Element") -> Article:
    kinds = {text_of(kind) for kind in citation.iterfind("Article/PublicationTypeList/PublicationType")}
    corrections = citation.iterfind("CommentsCorrectionsList/CommentsCorrections")
    return Article(
        id=text_of(citation.find("PMID")),
        kind="pubmed",
        title=_title(text_of(citation.find("Article/ArticleTitle"))),
        abstract=tuple(filter(None, map(text_of, citation.iterfind("Article/Abstract/AbstractText")))),
        languages=language_codes(map(text_of, citation.iterfind("Article/Language"))),
        retracted=bool(kinds & _RETRACTED) or any(c.get("RefType") == "RetractionIn" for c in corrections),
    )


def _title(title: str) -> str:
    """Return a title without the brackets that mark a translation: "[Title]." becomes "Title."; no placeholder."""
    if title == _NO_TITLE:
        return ""
    return f"{title[1:-2]}." if title.startswith("[") and title.endswith("].") else title
