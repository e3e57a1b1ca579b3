"""Read BioC files (Comeau et al. 2013), XML or JSON, with the `bioc` package (extra `bioc`)."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biosqueeze.data.annotations.annotated import (
    AnnotatedRelation,
    Annotation,
    Document,
    DocumentCounts,
    align_annotation,
    check_pieces,
    linked_relations,
)
from biosqueeze.data.lines import invalid_xml, read_beginning, read_bytes, read_json_document
from biosqueeze.errors import SqueezeError, require

if TYPE_CHECKING:
    from bioc import BioCAnnotation, BioCDocument, BioCRelation

_CONCEPT_KEYS = ("identifier", "Identifier", "MESH", "NCBI GENE")
_PARTS = ("passages", "sentences", "annotations", "relations", "nodes")  # of a part of BioC JSON
_CONCEPT_ARGUMENTS = frozenset({"entity1", "role1"})
_MAX_GAP = 1_000_000  # characters between two passages; more is taken for a wrong offset


def read_bioc(path: Path) -> Iterator[Document]:
    """Stream the documents of a BioC file, and log their number and every irregularity at the end.

    Each passage or sentence is placed at its own offset; gaps between them are filled with a line end and spaces. An
    annotation with several locations becomes one span, from its first to its last character.

    Args:
        path: BioC XML or JSON (a collection, or PubTator 3's list of documents), plain or with .gz.

    Raises:
        SqueezeError: the extra is not installed; the file is damaged; an annotation reaches beyond the text or
            differs from it; two documents have one id; there is no document.
    """
    counts = DocumentCounts(str(path))
    for number, raw in enumerate(_parse(path), start=1):
        document = _document(raw, f"{path} document {number}", counts)
        if counts.add(document):
            yield document
    counts.report()


def _parse(path: Path) -> "Sequence[BioCDocument]":
    require("bioc", "bioc")
    return _read_json(path) if read_beginning(path, 64).lstrip().startswith(("{", "[")) else _read_xml(path)


def _read_xml(path: Path) -> "Sequence[BioCDocument]":
    from bioc import biocxml
    from lxml import etree

    content = read_bytes(path)
    try:
        collection = biocxml.load(BytesIO(content))
    except etree.XMLSyntaxError as error:
        raise invalid_xml(path, error.lineno, error.msg) from error
    except (KeyError, TypeError, ValueError) as error:
        raise SqueezeError(
            f"{path} is XML, but not BioC: a passage has no offset, or an annotation has no id or location "
            f"({error}); check it against BioC.dtd"
        ) from error
    documents: Sequence[BioCDocument] = collection.documents
    if not documents and b"<collection" not in content:
        raise SqueezeError(f"{path} is XML, but not BioC: it has no <collection>; convert it, or name another file")
    return documents


def _read_json(path: Path) -> "Sequence[BioCDocument]":
    from bioc import biocjson

    documents = []
    for number, raw in enumerate(_document_list(read_json_document(path), path), start=1):
        try:
            documents.append(biocjson.fromJSON(_completed(raw), bioctype="BioCDocument"))
        except KeyError as error:
            raise SqueezeError(
                f"{path} document {number}: not a BioC document: the field {error} is missing in it or in a part of "
                "it; add the field"
            ) from error
        except TypeError as error:
            raise SqueezeError(
                f"{path} document {number}: not a BioC document: it, or a part of it, has another type than BioC has "
                f"({error}); correct it"
            ) from error
    return documents


def _completed(part: Any) -> Any:
    """Return a part of BioC JSON with the empty fields that BioRED's files leave out, and `bioc` needs."""
    if isinstance(part, list):
        return [_completed(each) for each in part]
    if not isinstance(part, dict):
        return part
    nested = {name: _completed(value) if name in _PARTS else value for name, value in part.items()}
    return {"infons": {}, **{name: [] for name in _PARTS if name != "passages"}, **nested}


def _document_list(value: Any, path: Path) -> list[Any]:
    """Return the documents of a collection, or of an object with a single list in it, as PubTator 3 writes it."""
    if isinstance(value, dict):
        lists = [item for item in value.values() if isinstance(item, list)]
        value = value.get("documents", lists[0] if len(lists) == 1 else None)
    if not isinstance(value, list):
        raise SqueezeError(f'{path} is JSON, but not BioC: it has no list "documents"; check the program that wrote it')
    return value


@dataclass
class _TextBuilder:
    """The text of a document, built from passages that each have an offset."""

    where: str
    pieces: list[str] = field(default_factory=list)
    length: int = 0

    def add(self, offset: int, piece: str) -> None:
        """Append a passage at its offset; without a text it has no place."""
        if not piece:
            return
        gap = _number(offset, self.where) - self.length
        if not 0 <= gap <= _MAX_GAP:
            raise SqueezeError(
                f"{self.where}: a passage has the offset {offset}, but the text before it ends at {self.length}; "
                "correct the offsets, which count the characters of the whole document"
            )
        filler = "\n" + " " * (gap - 1) if gap and self.length else " " * gap
        self.pieces += [filler, piece]
        self.length = offset + len(piece)


@dataclass(frozen=True)
class _Level:
    """A document, passage or sentence: its annotations with their ids, its relations, and the levels in it."""

    annotations: list[tuple[str, Annotation]]
    relations: "Sequence[BioCRelation]"
    parts: "list[_Level]"

    def named(self) -> list[tuple[str, Annotation]]:
        """Return its annotations and those of all levels in it, in the order of the file."""
        return [*self.annotations, *(named for part in self.parts for named in part.named())]

    def linked(self, around: Mapping[str, Annotation], counts: Counter[str]) -> tuple[AnnotatedRelation, ...]:
        """Return its relations and those of all levels in it.

        Ids need to be unique within the level of the relation alone, so annotations of that level come first.

        Args:
            around: the annotations of the levels around it, by id.
            counts: of what a reader met.
        """
        known = {**around, **dict(self.named())}
        own = linked_relations(map(_arguments, self.relations), known, counts)
        return (*own, *(relation for part in self.parts for relation in part.linked(known, counts)))


def _document(raw: "BioCDocument", where: str, counts: DocumentCounts) -> Document:
    name = str(raw.id or "")
    where = f"{where} ({name})"
    text = _TextBuilder(where)
    for passage in raw.passages:
        text.add(passage.offset, whole := _text(passage.text, where))
        for sentence in passage.sentences:
            text.add(sentence.offset, "" if whole else _text(sentence.text, where))
    bare = Document(name, "".join(text.pieces), (), where)

    def level(part: Any) -> _Level:
        aligned = ((str(each.id), _annotation(bare, each, where, counts)) for each in part.annotations)
        parts = getattr(part, "passages", ()) or getattr(part, "sentences", ())
        return _Level([(key, each) for key, each in aligned if each], part.relations, list(map(level, parts)))

    read = level(raw)
    return replace(bare, annotations=tuple(each for _, each in read.named()), relations=read.linked({}, counts.counts))


def _arguments(relation: "BioCRelation") -> tuple[str, list[str]]:
    """Return the type of a relation and the ids of its arguments by role, which may be in any order in the file.

    Returns:
        no arguments for a relation between concepts of the whole document, as in BioRED and PubTator 3.
    """
    infons = relation.infons if isinstance(relation.infons, Mapping) else {}
    is_of_concepts = not _CONCEPT_ARGUMENTS.isdisjoint(infons)
    nodes = [] if is_of_concepts else sorted(relation.nodes, key=lambda node: str(node.role))
    return str(infons.get("type") or "relation"), [str(node.refid) for node in nodes]


def _annotation(document: Document, raw: "BioCAnnotation", where: str, counts: DocumentCounts) -> Annotation | None:
    if not raw.locations:
        counts.counts["annotations without a location skipped"] += 1
        return None
    spans = [(_number(location.offset, where), _number(location.length, where)) for location in raw.locations]
    start, end = min(offset for offset, _ in spans), max(map(sum, spans))
    text = _text(raw.text, where)
    if len(raw.locations) > 1:
        counts.counts["discontinuous annotations read as one span from first to last character"] += 1
        pieces = [(offset, offset + length) for offset, length in spans]
        check_pieces(document.text, pieces, text, f"{where} annotation {raw.id}")
        text = document.text[max(start, 0) : end]
    infons = raw.infons if isinstance(raw.infons, Mapping) else {}
    concept = next((str(infons[key]) for key in _CONCEPT_KEYS if infons.get(key)), "")
    entity_type = infons.get("type")
    if not entity_type:
        raise SqueezeError(f'{where}: the annotation {raw.id} has no type; add <infon key="type">')
    return align_annotation(
        document, Annotation(start, end, str(entity_type), text, concept), f"{where} annotation {raw.id}"
    )


def _text(value: Any, where: str) -> str:
    """Return a text, which JSON does not guarantee to be a string; "" for none."""
    if not isinstance(value, str | None):
        raise SqueezeError(f"{where}: the text {str(value)[:40]!r} is no string; write it as one")
    return value or ""


def _number(value: Any, where: str) -> int:
    """Return an offset or a length, which JSON does not guarantee to be an integer."""
    if not isinstance(value, int):
        raise SqueezeError(f"{where}: the offset or length {value!r} is not an integer; write a number of characters")
    return value
