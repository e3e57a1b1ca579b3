"""Read the articles of BioC, JSON lines and plain text."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, BinaryIO

from biosqueeze.corpora.article import Article, fold
from biosqueeze.corpora.languages import language_codes
from biosqueeze.corpora.sections import Sections, sections_named
from biosqueeze.corpora.xml_stream import EXTRA, DamagedSourceError, stream_elements, text_of
from biosqueeze.data.text.corpus import divide_into_documents
from biosqueeze.errors import first_line, require
from biosqueeze.files.parsing import max_line_bytes, nan_as_missing, parse_json, too_large

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

FIELDS = ("id", "pmid", "title", "abstract", "language")
"""The fields of a record that are read, beside the one with the text."""
_TITLES = {"title", "front"}
_ABSTRACTS = {"abstract", "abstract_title_1"}
_HEADINGS = ("title", "abstract_title")
_NOT_TEXT = {"ref", "table", "tbl", "fig", "suppl", "comp_int", "auth_cont", "ack_fund", "keyword", "abbr"}
_BEGINNING = 1 << 12
_SHOWN = 60  # characters of a value


def read_text(stream: BinaryIO, *, in_blocks: bool = False) -> Iterator[Article]:
    """Yield the articles of a text file: one on each line, or, where the file has blank lines, one between two of them.

    Args:
        stream: of the file.
        in_blocks: whether an article ends at a blank line alone, as in a built corpus.

    Raises:
        DamagedSourceError: a line has no end, or is binary data.
    """
    for paragraphs in divide_into_documents(_lines(stream), in_blocks=in_blocks):
        yield Article("", "text", body=tuple(paragraphs), has_parts=False)


def read_json_lines(stream: BinaryIO, field: str) -> Iterator[Article]:
    """Yield the articles of JSON lines: their `id` (or `pmid`), `title`, `abstract`, and the field with the text.

    Raises:
        DamagedSourceError: a line is no JSON object with a text.
    """
    for number, line in enumerate(_lines(stream), start=1):
        if line:
            yield _article_of_line(line, field, number)


def _article_of_line(line: str, field: str, number: int) -> Article:
    try:
        record = parse_json(line, parse_constant=nan_as_missing)
    except ValueError as error:
        raise DamagedSourceError(f"line {number}: invalid JSON ({error})") from error
    if not isinstance(record, dict):
        raise DamagedSourceError(f"line {number}: a JSON {type(record).__name__}, and an object was expected")
    return article_of_record(record, field, f"line {number}")


def article_of_record(
    record: Mapping[str, Any], field: str, where: str, fields: Collection[str] | None = None
) -> Article:
    """Return the article of a record: its `id` (or `pmid`), `title`, `abstract`, and the field with the text.

    Args:
        record: the fields that are read.
        field: that with the text.
        where: for messages.
        fields: the names of all its fields, where the record has not all of them.

    Raises:
        DamagedSourceError: it has none of the fields, or another value than texts in one.
    """
    if not any(key in record for key in (field, "abstract", "title")):
        raise DamagedSourceError(
            f"{where}: no field {field!r}, but {', '.join(fields or record) or 'none'}; name the field with the text "
            "with --field"
        )
    return Article(
        id=_id_of(record),
        kind="text",
        title=" ".join(_texts(record, "title", where)),
        abstract=_texts(record, "abstract", where),
        body=_texts(record, field, where) if field not in ("title", "abstract") else (),
        languages=_languages(record.get("language")),
        lacking=None if field in record else tuple(fields or record),
    )


def _id_of(record: Mapping[str, Any]) -> str:
    """Return the `id` of a record, or else its `pmid`; empty where both are missing or null."""
    value = next((record[key] for key in ("id", "pmid") if record.get(key) is not None), "")
    return fold(str(value))


def _languages(value: Any) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    return language_codes(str(each or "") for each in values)


def _texts(record: Mapping[str, Any], field: str, where: str) -> tuple[str, ...]:
    """Return the paragraphs of a text (its lines), or of a list of texts.

    Raises:
        DamagedSourceError: the field holds something else, whose texts would be lost.
    """
    value = record.get(field) or []
    lines = value.splitlines() if isinstance(value, str) else value
    if not isinstance(lines, list) or not all(isinstance(line, str | None) for line in lines):
        raise DamagedSourceError(
            f"{where}: the field {field!r} holds {str(value)[:_SHOWN]!r}, and a text or a list of texts was expected; "
            "write its texts as strings, or name another field with --field"
        )
    return tuple(filter(None, map(fold, filter(None, lines))))


def _lines(stream: BinaryIO) -> Iterator[str]:
    limit = max_line_bytes()
    for number in count(1):
        if not (raw := stream.readline(limit + 1)):
            return
        if len(raw) > limit:
            raise DamagedSourceError(str(too_large("a line", limit)))
        if b"\0" in raw:
            raise DamagedSourceError(f"line {number}: a NUL byte, which text has not; it seems to be binary data")
        yield fold(raw.decode("utf-8").removeprefix("\ufeff"))


def read_bioc_articles(stream: BinaryIO) -> Iterator[Article]:
    """Yield the articles of a BioC collection, XML or JSON (Comeau et al. 2013); tables, figures, references left out.

    Raises:
        DamagedSourceError: it is cut short or not BioC.
    """
    beginning = stream.peek(_BEGINNING)[:_BEGINNING].lstrip()  # type: ignore[attr-defined]
    if beginning.startswith(b"<"):
        return (_from_xml(document) for document in stream_elements(stream, ("document",)))
    return (_from_json(document) for document in _json_documents(stream, beginning))


def _from_xml(document: "Element") -> Article:
    passages = [
        ({str(infon.get("key")): text_of(infon) for infon in passage.iterfind("infon")}, _passage_text(passage))
        for passage in document.iterfind("passage")
    ]
    return _article(text_of(document.find("id")), passages)


def _passage_text(passage: "Element") -> str:
    whole = text_of(passage.find("text"))
    return whole or fold(" ".join(text_of(sentence.find("text")) for sentence in passage.iterfind("sentence")))


def _json_documents(stream: BinaryIO, beginning: bytes) -> Iterator[Mapping[str, Any]]:
    """Yield the documents of a collection, of a list of collections, or of PubTator 3's export."""
    ijson = require("ijson", EXTRA)
    prefix = "item.documents.item" if beginning.startswith(b"[") else "documents.item"
    if b'"PubTator3"' in beginning:
        prefix = "PubTator3.item"
    empty = True
    try:
        for document in ijson.items(stream, prefix):
            empty = False
            yield document
    except (ijson.JSONError, ijson.IncompleteJSONError) as error:
        raise DamagedSourceError(
            f"invalid JSON ({first_line(error)}); fetch it again, or let its name end in .jsonl if it has a record on "
            "each line"
        ) from error
    if empty and b'"documents"' not in beginning:
        raise DamagedSourceError(
            "it is JSON without a document of BioC; write records as JSON lines, one object on each line of a .jsonl"
        )


def _from_json(document: Any) -> Article:
    if not isinstance(document, dict) or not isinstance(document.get("passages"), list):
        raise DamagedSourceError("it is JSON, but a document of it has no passages, as BioC has")
    passages = []
    for passage in document["passages"]:
        if not isinstance(passage, dict):
            raise DamagedSourceError("it is JSON, but a passage of it is no object, as in BioC")
        infons = passage.get("infons")
        sentences = [s.get("text", "") for s in passage.get("sentences") or () if isinstance(s, dict)]
        text = fold(str(passage.get("text") or " ".join(map(str, sentences))))
        passages.append((infons if isinstance(infons, dict) else {}, text))
    return _article(_id_of(document), passages)


def _article(name: str, passages: Sequence[tuple[Mapping[str, Any], str]]) -> Article:
    parts: dict[str, list[str]] = {"title": [], "abstract": [], "body": []}
    sections = list[Sections]()
    for infons, text in passages:
        section = str(infons.get("section_type") or infons.get("section") or infons.get("type") or "").lower()
        is_heading = section not in _TITLES and _is_heading(infons)
        if section not in _NOT_TEXT and text and not is_heading:
            part = "title" if section in _TITLES else "abstract" if section in _ABSTRACTS else "body"
            parts[part].append(text)
            sections += [sections_named(section)] if part == "body" else []
    title, abstract, body = (tuple(texts) for texts in parts.values())
    return Article(name, "bioc", " ".join(title), abstract, body, sections=tuple(sections))


def _is_heading(infons: Mapping[str, Any]) -> bool:
    """Return whether a passage is a heading: in PMC's layout, of the type title_1 or abstract_title_1 in a section."""
    kind = str(infons.get("type") or "").lower()
    return bool(infons.get("section_type")) and kind.startswith(_HEADINGS)
