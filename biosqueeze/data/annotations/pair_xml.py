"""Read XML of sentences with entities and pairs, also those that do not interact.

It is the format of the DDI corpus (Herrero-Zazo et al. 2013), and that in which Pyysalo et al. (2008) publish AIMed,
BioInfer, HPRD50, IEPA and LLL.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from biosqueeze.data.annotations.annotated import (
    AnnotatedRelation,
    Annotation,
    Document,
    DocumentCounts,
    align_annotation,
    linked_relations,
)
from biosqueeze.data.lines import invalid_xml, read_beginning, read_bytes
from biosqueeze.errors import SqueezeError, require

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

NO_INTERACTION, INTERACTION = "false", "true"
"""The types of a pair that does not interact, and of one whose interaction has no type."""
_ENTITY = "entity"  # of IEPA, whose entities have no type
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

    The span of an entity in several pieces is from its first character to its last. Relations have no direction: the
    head is the first in the text. Of a folder with sub-folders, such as those of the two tasks of the DDI corpus, the
    pairs in one without any interaction count as not annotated.

    Raises:
        SqueezeError: the extra is not installed, a file is damaged or of another kind, or an entity does not agree with
            its sentence.
    """
    counts = DocumentCounts(str(source))
    for folder, paths in _by_folder(source).items():
        documents = [document for path in paths for document in _documents(path, counts)]
        types = Counter(relation.type for document in documents for relation in document.relations)
        if folder and set(types) == {NO_INTERACTION}:
            counts.counts[f"pairs in {folder} left out, because none of them interacts"] = types.total()
            documents = [replace(document, relations=()) for document in documents]
        yield from filter(counts.add, documents)
    counts.report()


def _by_folder(source: Path) -> dict[str, list[Path]]:
    """Return the files by the name of the folder in `source` that holds them, "" for none."""
    if not source.is_dir():
        return {"": [source]}
    files: dict[str, list[Path]] = {}
    for path in sorted(source.rglob("*.xml")):
        folder, *below = path.relative_to(source).parts
        files.setdefault(folder if below else "", []).append(path)
    return files


def _documents(path: Path, counts: DocumentCounts) -> Iterator[Document]:
    require("lxml", "bioc")
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    try:
        root = etree.fromstring(read_bytes(path), parser)
    except etree.XMLSyntaxError as error:
        raise invalid_xml(path, error.lineno, error.msg) from error
    return (_document(sentence, f"{path}:{sentence.sourceline}", counts) for sentence in root.iter("sentence"))


def _document(sentence: "Element", where: str, counts: DocumentCounts) -> Document:
    name, text = sentence.get("id"), sentence.get("text")
    if not name or text is None:
        raise SqueezeError(f"{where}: a sentence without an id or a text; add both")
    bare = Document(name, text, (), where, is_sentence=True, part_of=_document_of(sentence))
    entities = {entity.get("id", ""): _annotation(entity, bare, counts) for entity in sentence.iter("entity")}
    pairs = [pair for tag in ("pair", "interaction") for pair in sentence.iter(tag)]
    typed = [(kind, pair) for pair in pairs if (kind := _type(pair))]
    if len(typed) < len(pairs):
        counts.counts["interactions without a type left out"] += len(pairs) - len(typed)
    relations = linked_relations(
        ((kind, [pair.get("e1", ""), pair.get("e2", "")]) for kind, pair in typed), entities, counts.counts
    )
    return replace(bare, annotations=tuple(entities.values()), relations=tuple(map(_in_order, relations)))


def _document_of(sentence: "Element") -> str:
    """Return the id of the document that holds a sentence; "" if there is none."""
    around = sentence.getparent()
    return around.get("id", "") if around is not None and around.tag == "document" else ""


def _annotation(entity: "Element", document: Document, counts: DocumentCounts) -> Annotation:
    where, covered = f"{document.where} entity {entity.get('id')}", entity.get("text", "")
    spans = [(int(start), int(end)) for start, end in _SPAN.findall(entity.get("charOffset", ""))]
    if not spans:
        raise SqueezeError(f'{where}: no offsets; write charOffset="0-6", with the first and the last character')
    if len(spans) > 1:
        counts.counts["discontinuous annotations read as one span from first to last character"] += 1
    shift = _end_shift(document.text, spans, covered)
    start, end = spans[0][0], spans[-1][1] + (1 if shift is None else shift)
    if shift is not None or len(spans) > 1:
        covered = document.text[start:end]
    return align_annotation(document, Annotation(start, end, entity.get("type", _ENTITY), covered), where)


def _end_shift(text: str, spans: Sequence[tuple[int, int]], covered: str) -> int | None:
    """Return what is added to the end of an entity; None if its text is nowhere near, whatever the case of letters.

    The end is the last character in DDI 2013, and the one behind, now and then another one, in DDI 2011 and in the
    corpora of protein interactions.
    """
    words = covered.casefold().split()
    for shift in (1, 0, -1):
        pieces = (text[start : end + shift] for start, end in spans)
        if spans[-1][1] + shift <= len(text) and " ".join(pieces).casefold().split() == words:
            return shift
    return None


def _type(pair: "Element") -> str | None:
    """Return the type of a pair. In DDI 2013 all interactions have one, but for an error; elsewhere none has."""
    value = pair.get("ddi", pair.get("interaction", INTERACTION)).lower()
    return NO_INTERACTION if value == "false" else pair.get("type", None if "ddi" in pair.attrib else INTERACTION)


def _in_order(relation: AnnotatedRelation) -> AnnotatedRelation:
    first, second = sorted((relation.head, relation.tail), key=lambda each: (each.start, each.end))
    return replace(relation, head=first, tail=second)
