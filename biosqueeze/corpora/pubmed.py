"""Read the articles of PubMed XML: baseline and update files, and what E-utilities return."""

from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, BinaryIO

from biosqueeze.corpora.article import Article, Deletion
from biosqueeze.corpora.languages import language_codes
from biosqueeze.corpora.xml_stream import stream_elements, text_of

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

_CITATION, _BOOK, _DELETION = "MedlineCitation", "BookDocument", "DeleteCitation"
_NO_TITLE = "[Not Available]."
_ENDS = (".", "?", "!")
_RETRACTED = {"Retracted Publication"}


def read_pubmed(stream: BinaryIO) -> Iterator[Article | Deletion]:
    """Yield the articles of a PubMed XML file, those of books among them, and the ids that it withdraws.

    Each section of a structured abstract is one text. Abstracts in other languages (OtherAbstract) are not read. A
    title that PubMed translated is without its brackets.

    Raises:
        DamagedSourceError: the XML is cut short or not well-formed.
    """
    for element in stream_elements(stream, (_CITATION, _BOOK, _DELETION)):
        if element.tag == _DELETION:
            yield from (Deletion(text_of(pmid), "pubmed") for pmid in element.iterfind("PMID"))
        else:
            yield _article(element)


def _article(citation: "Element") -> Article:
    inner = citation.find("Article")
    article = citation if inner is None else inner  # of a book, its fields are those of the document
    kinds = {text_of(kind) for kind in article.iterfind("PublicationTypeList/PublicationType")}
    corrections = citation.iterfind("CommentsCorrectionsList/CommentsCorrections")
    return Article(
        id=text_of(citation.find("PMID")),
        kind="pubmed",
        title=_title(text_of(article.find("ArticleTitle"))),
        abstract=tuple(filter(None, map(text_of, article.iterfind("Abstract/AbstractText")))),
        languages=language_codes(map(text_of, article.iterfind("Language"))),
        retracted=bool(kinds & _RETRACTED) or any(c.get("RefType") == "RetractionIn" for c in corrections),
    )


def _title(title: str) -> str:
    """Return a title without the brackets that mark a translation: "[Title]." becomes "Title."; no placeholder."""
    if title == _NO_TITLE:
        return ""
    if not (title.endswith("].") and _is_one_bracket(title[:-1])):
        return title
    translated = title[1:-2]
    return translated if translated.endswith(_ENDS) else f"{translated}."


def _is_one_bracket(title: str) -> bool:
    """Return whether the bracket that a title begins with closes at its end, unlike that of "[3H]Ouabain [sic]"."""
    depths = list(accumulate((letter == "[") - (letter == "]") for letter in title))
    return title.startswith("[") and depths[-1] == 0 and 0 not in depths[:-1]
