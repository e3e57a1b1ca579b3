"""Read the articles of JATS XML, in which PMC publishes full texts."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from biosqueeze.corpora.article import Article, fold
from biosqueeze.corpora.xml_stream import language_of, stream_elements, text_of

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

# What is inside a paragraph and is not part of its sentences.
_NOT_TEXT = {
    "table-wrap", "fig", "fig-group", "disp-formula", "disp-formula-group", "inline-formula", "tex-math",
    "supplementary-material", "media", "graphic", "inline-graphic", "fn", "object-id",
}  # fmt: skip
# What may stand inside a paragraph and has paragraphs of its own.
_BLOCKS = {"p", "list", "def-list", "boxed-text", "disp-quote"}
# A reference such as the raised 12 in "shown before12" would become part of the word before it.
_CITATION = "xref"
# What is left of "[1, 2]". The first pattern is quick: few texts have such brackets.
_EMPTY_BRACKETS = re.compile(r"[\[(][\s,;\u2013-]*[\])]")
_WITH_SPACE_BEFORE = re.compile(r"\s*" + _EMPTY_BRACKETS.pattern)
_NOT_SECTIONS = {"ref-list", "ack", "fn-group", "glossary", "app-group", "notes"}
_RETRACTED = {"retraction", "retracted-article"}


def read_jats(stream: BinaryIO) -> Iterator[Article]:
    """Yield the articles of a JATS file (one article, or a set of them).

    Each paragraph of abstract and body is one text. Tables, figures, formulas, footnotes, references and citation marks
    are left out, and so are abstracts in other languages and those of graphics.

    Raises:
        DamagedSourceError: the XML is cut short or not well-formed.
    """
    for element in stream_elements(stream, ("{*}article",)):
        yield _article(element)


def _article(article: "Element") -> Article:
    meta = article.find("{*}front/{*}article-meta")
    body = article.find("{*}body")
    if meta is None:
        return Article(id="", kind="pmc", body=_paragraphs(body), language=language_of(article))
    abstracts = [a for a in meta.iterfind("{*}abstract") if a.get("abstract-type") in (None, "summary", "section")]
    return Article(
        id=_identifier(meta),
        kind="pmc",
        title=_text(meta.find("{*}title-group/{*}article-title")),
        abstract=tuple(text for abstract in abstracts for text in _paragraphs(abstract)),
        body=_paragraphs(body),
        language=language_of(article),
        retracted=article.get("article-type") in _RETRACTED or _is_retracted(meta),
    )


def _identifier(meta: "Element") -> str:
    """Return the PMC id as PMC1234, else the PMID, else the DOI, else an empty text."""
    ids = {element.get("pub-id-type"): text_of(element) for element in meta.iterfind("{*}article-id")}
    pmc = ids.get("pmcid") or ids.get("pmc") or ids.get("pmc-uid")
    if pmc:
        return pmc if pmc.upper().startswith("PMC") else f"PMC{pmc}"
    return ids.get("pmid") or ids.get("doi") or ""


def _is_retracted(meta: "Element") -> bool:
    return any(
        item.get("related-article-type") in ("retraction-forward", "retracted-by")
        for item in meta.iterfind("{*}related-article")
    )


def _paragraphs(part: "Element | None") -> tuple[str, ...]:
    """Return the paragraphs of an abstract or body in reading order."""
    if part is None:
        return ()
    inside = (p for p in part.iter("{*}p") if not _is_left_out(p, part))
    return tuple(filter(None, map(_text, inside)))


def _is_left_out(paragraph: "Element", part: "Element") -> bool:
    parent = paragraph.getparent()
    while parent is not part:
        if _name(parent) in _NOT_SECTIONS or _name(parent) in _NOT_TEXT:
            return True
        parent = parent.getparent()
    return False


def _text(element: "Element | None") -> str:
    if element is None:
        return ""
    text = "".join(_pieces(element))
    return fold(_WITH_SPACE_BEFORE.sub("", text) if _EMPTY_BRACKETS.search(text) else text)


def _pieces(element: "Element") -> Iterator[str]:
    """Yield the text below an element without what is no sentence; a citation mark ends no word."""
    yield element.text or ""
    for child in element:
        name = _name(child)
        if name in _BLOCKS:
            yield " "
        elif name not in _NOT_TEXT and not (name == _CITATION and child.get("ref-type") == "bibr"):
            yield from _pieces(child)
        yield child.tail or ""


def _name(element: "Element") -> str:
    return str(element.tag).rpartition("}")[2]
