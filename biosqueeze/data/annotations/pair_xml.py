"""Read XML of sentences with entities and pairs, also those that do not interact.

It is the format of the DDI corpus (Herrero-Zazo et al. 2013), and that in which Pyysalo et al. (2008) publish AIMed,
BioInfer, HPRD50, IEPA and LLL.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from biosqueeze.data.annotations.annotated import (
    Annotation,
    Document,
    DocumentCounts,
    align_annotation,
    linked_relations,
)
from biosqueeze.data.lines import open_binary, read_beginning
from biosqueeze.errors import SqueezeError, require
from biosqueeze.files.parsing import max_document_bytes, too_large

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

NO_INTERACTION, INTERACTION = "false", "true"
"""The types of a pair that does not interact, and of one whose interaction has no type."""
_SENTENCE = re.compile(r"<sentence\b[^>]*\stext\s*=")  # BioC's has no attribute
_SPAN = re.compile(r"(\d{1,9})-(\d{1,9})")


def is_pair_xml(text: str) -> bool:
    """Return whether the beginning of a file is of this format."""
    return _SENTENCE.search(text) is not None


def has_pair_xml(folder: Path) -> bool:
    """Return whether a folder holds such files, at any depth."""
    first = next(folder.rglob("*.xml"), None)
    return first is not None and is_pair_xml(read_beginning(first))


def read_pair_xml(source: Path) -> Iterator[Document]:
    """Stream the sentences of a file, or of all .xml files below a folder, and log their number at the end.

    The span of an entity in several pieces is from its first character to its last.

    Raises:
        SqueezeError: the extra is not installed, a file is damaged or of another kind, or an entity does not agree with
            its sentence.
    """
    counts = DocumentCounts(str(source))
    for path in sorted(source.rglob("*.xml")) if source.is_dir() else [source]:
        sentences = _sentences(path)
        shift = _end_shift(sentences)
        for sentence in sentences:
            document = _document(sentence, f"{path}:{sentence.sourceline}", shift, counts)
            if counts.add(document):
                yield document
    counts.report()


def _sentences(path: Path) -> "list[Element]":
    require("lxml", "bioc")
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    with open_binary(path) as stream:
        content = stream.read((limit := max_document_bytes()) + 1)
    if len(content) > limit:
        raise too_large(str(path), limit)
    try:
        root = etree.fromstring(content, parser)
    except etree.XMLSyntaxError as error:
        raise SqueezeError(
            f"{path}:{error.lineno}: invalid XML ({error.msg}); correct this line, or download the file again"
        ) from error
    return list(root.iter("sentence"))


def _end_shift(sentences: "Sequence[Element]") -> int:
    """Return what is added to the ends of entities: 1 where they are the last characters, as usual, else 0."""
    entities = [
        (sentence.get("text", ""), span, entity.get("text"))
        for sentence in sentences
        for entity in sentence.iter("entity")
        if (span := _SPAN.fullmatch(entity.get("charOffset", "")))
    ]

    def agreeing(shift: int) -> int:
        return sum(text[int(span[1]) : int(span[2]) + shift] == covered for text, span, covered in entities)

    return max((1, 0), key=agreeing)


def _document(sentence: "Element", where: str, shift: int, counts: DocumentCounts) -> Document:
    name, text = sentence.get("id"), sentence.get("text")
    if not name or text is None:
        raise SqueezeError(f"{where}: a sentence without an id or a text; add both")
    bare = Document(name, text, (), where, is_sentence=True)
    entities = {entity.get("id", ""): _annotation(entity, bare, shift, counts) for entity in sentence.iter("entity")}
    pairs = [pair for tag in ("pair", "interaction") for pair in sentence.iter(tag)]
    arguments = ((_type(pair), [pair.get("e1", ""), pair.get("e2", "")]) for pair in pairs)
    linked = linked_relations(arguments, entities, counts.counts)
    return replace(bare, annotations=tuple(entities.values()), relations=linked)


def _annotation(entity: "Element", document: Document, shift: int, counts: DocumentCounts) -> Annotation:
    where = f"{document.where} entity {entity.get('id')}"
    spans = [(int(start), int(end) + shift) for start, end in _SPAN.findall(entity.get("charOffset", ""))]
    kind = entity.get("type")
    if not spans or not kind:
        raise SqueezeError(f'{where}: no type, or no offsets; write charOffset="0-6" with the first and last character')
    start, end = spans[0][0], spans[-1][1]
    text = entity.get("text", "")
    if len(spans) > 1:
        counts.counts["discontinuous annotations read as one span from first to last character"] += 1
        text = document.text[start:end]
    return align_annotation(document, Annotation(start, end, kind, text), where)


def _type(pair: "Element") -> str:
    """Return the type of a pair; an `interaction` without a value is one."""
    value = pair.get("ddi", pair.get("interaction", INTERACTION)).lower()
    return NO_INTERACTION if value == "false" else pair.get("type") or INTERACTION
