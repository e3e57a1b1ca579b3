"""Stream the elements of large XML files with lxml: one element is in memory at a time, entities are not expanded."""

from collections.abc import Iterator
from html.entities import html5
from typing import TYPE_CHECKING, BinaryIO

from biosqueeze.corpora.article import fold
from biosqueeze.corpora.languages import language_codes
from biosqueeze.errors import SqueezeError, require

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

EXTRA = "corpus"
_BLOCK_BYTES = 1 << 16


class DamagedSourceError(SqueezeError):
    """A file of a source that cannot be read to its end."""


def stream_elements(stream: BinaryIO, tags: tuple[str, ...]) -> "Iterator[Element]":
    """Yield every element with one of the tags when it is complete; it is cleared when the next one is asked for.

    Entities of a DTD in another file, such as &alpha;, become the characters that HTML has for them.

    Raises:
        DamagedSourceError: the XML is cut short or not well-formed, it has an unknown entity, or it declares entities,
            with which a small file can describe an endless text.
    """
    require("lxml", EXTRA)
    from lxml import etree

    parser = etree.XMLPullParser(
        ("end",),
        tag=tags,
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        remove_comments=True,
        remove_pis=True,
    )  # twice as fast as etree.iterparse
    checked = False
    try:
        while block := stream.read(_BLOCK_BYTES):
            parser.feed(block)
            for _, element in parser.read_events():
                checked = checked or _refuse_entities(element)
                _replace_entities(element)
                yield element
                _discard(element)
        parser.close()
    except etree.XMLSyntaxError as error:
        raise DamagedSourceError(f"invalid XML at line {error.lineno} ({error.msg})") from error


def _refuse_entities(element: "Element") -> bool:
    declared = element.getroottree().docinfo.internalDTD
    if declared is not None and next(declared.iterentities(), None) is not None:
        raise DamagedSourceError("the XML declares entities, which are not expanded")
    return True


def _replace_entities(element: "Element") -> None:
    """Replace the entities below an element by their characters.

    Raises:
        DamagedSourceError: an entity is unknown.
    """
    from lxml import etree

    for entity in list(element.iter(etree.Entity)):
        characters = html5.get(f"{entity.name};")
        if characters is None:
            raise DamagedSourceError(f"the entity &{entity.name}; is unknown, and DTDs in other files are not read")
        before, parent = entity.getprevious(), entity.getparent()
        text = characters + (entity.tail or "")
        if before is None:
            parent.text = (parent.text or "") + text
        else:
            before.tail = (before.tail or "") + text
        parent.remove(entity)


def _discard(element: "Element") -> None:
    """Free an element and what lies before it in the tree, which lxml would keep until the end of the file."""
    element.clear()
    for node in (element, *element.iterancestors()):
        parent = node.getparent()
        while parent is not None and node.getprevious() is not None:
            del parent[0]


def text_of(element: "Element | None") -> str:
    """Return the text of an element and all below it, with runs of white space as one space."""
    return "" if element is None else fold("".join(element.itertext()))


_XML_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


def languages_of(element: "Element") -> tuple[str, ...]:
    """Return the three-letter code of `xml:lang`, as PubMed writes languages; none where there is none."""
    return language_codes([element.get(_XML_LANGUAGE) or ""])
