"""Read the articles of JATS XML, in which PMC publishes full texts."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, BinaryIO

from biosqueeze.corpora.article import Article, fold
from biosqueeze.corpora.sections import Sections, sections_named
from biosqueeze.corpora.xml_stream import languages_of, stream_elements, text_of

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
_GAP = "\0"  # in place of a citation mark; no XML has it
# What is left of "[1, 2]", "[1], [2]" and "1-3": marks, and brackets that hold nothing else, one after the other. A
# bracket with a minus alone is text: "HBsAg(-)", "(-)-menthol".
_BETWEEN = r"\s,;\u2013\-"
_MARK = rf"(?:{_GAP}|[\[(](?:\s*|[{_BETWEEN}]*{_GAP}[{_BETWEEN}{_GAP}]*)[\])])"
_MARKS = re.compile(rf"{_MARK}(?:[{_BETWEEN}]*{_MARK})*")
_GAPS = re.compile(rf" {_GAP}(?!\w)|{_GAP}")
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
    body, sections = _body(article.find("{*}body"))
    languages = languages_of(article)
    if meta is None:
        return Article(id="", kind="pmc", body=body, sections=sections, languages=languages)
    abstracts = [a for a in meta.iterfind("{*}abstract") if a.get("abstract-type") in (None, "summary", "section")]
    return Article(
        id=_identifier(meta),
        kind="pmc",
        title=_text(meta.find("{*}title-group/{*}article-title")),
        abstract=tuple(text for abstract in abstracts for text in _texts_below(abstract) if text),
        body=body,
        sections=sections,
        languages=languages,
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


def _body(body: "Element | None") -> tuple[tuple[str, ...], tuple[Sections, ...]]:
    """Return the paragraphs of a body in reading order, and the sections that each belongs to."""
    texts, sections = list[str](), list[Sections]()
    for child in () if body is None else body:
        own = list(filter(None, _texts_in(child)))
        texts += own
        sections += [_sections_of(child)] * len(own)
    return tuple(texts), tuple(sections)


def _sections_of(section: "Element") -> Sections:
    """Return what the type of a section says it is, and its title: types such as "section" say nothing."""
    return sections_named(str(section.get("sec-type") or "")) | sections_named(text_of(section.find("{*}title")))


def _texts_below(element: "Element") -> Iterator[str]:
    """Yield the text of every paragraph below an element, except in what is left out."""
    for child in element:
        yield from _texts_in(child)


def _texts_in(element: "Element") -> Iterable[str]:
    """Return the texts of a paragraph, or of those below an element."""
    name = _name(element.tag)
    if name == "p":
        return _texts_of(element)
    return () if name in _NOT_SECTIONS or name in _NOT_TEXT else _texts_below(element)


def _texts_of(paragraph: "Element") -> Iterator[str]:
    """Yield the text of a paragraph, and then those of the paragraphs inside it."""
    pieces, blocks = list[str](), list["Element"]()
    _collect(paragraph, pieces, blocks)
    yield _folded(pieces)
    for block in blocks:
        yield from _texts_in(block)


def _text(element: "Element | None") -> str:
    pieces = list[str]()
    if element is not None:
        _collect(element, pieces, [])
    return _folded(pieces)


def _folded(pieces: list[str]) -> str:
    """Join the pieces, and remove citation marks and empty brackets with the white space before them."""
    text, gaps = _MARKS.subn(_GAP, "".join(pieces))
    folded = fold(text)
    return _GAPS.sub("", folded).strip() if gaps else folded


def _collect(element: "Element", pieces: list[str], blocks: list["Element"]) -> None:
    """Append the text below an element without what is no sentence; a citation mark ends no word.

    Args:
        element: a paragraph, a title, or an element inside one.
        pieces: takes the text.
        blocks: takes the elements that have paragraphs of their own.
    """
    if element.text:
        pieces.append(element.text)
    for child in element:
        name = _name(child.tag)
        if name in _BLOCKS:
            pieces.append(" ")
            blocks.append(child)
        elif name == "break":
            pieces.append(" ")
        elif name == _CITATION and child.get("ref-type") == "bibr":
            pieces.append(_GAP)
        elif name not in _NOT_TEXT:
            _collect(child, pieces, [] if name in _NOT_SECTIONS else blocks)
        if child.tail:
            pieces.append(child.tail)


@cache
def _name(tag: object) -> str:
    """Return the name of a tag without its namespace."""
    return str(tag).rpartition("}")[2]
