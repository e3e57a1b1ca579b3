"""Read and write PubTator: title line, abstract line and tab-separated annotations per document (Wei et al. 2013)."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from biosqueeze.data.annotations.annotated import Annotation, Document, DocumentCounts, align_annotation
from biosqueeze.data.lines import numbered_lines
from biosqueeze.errors import SqueezeError

UNTYPED = "Entity"
"""The type that is written for an entity without one (`--merge-types`, or labels O, B and I): the format needs one."""
TEXT_LINE = re.compile(r"([^|\t]+)\|([ta])\|(.*)", re.DOTALL)
_EXPECTED = (
    "expected ID|t|TITLE, ID|a|ABSTRACT, an annotation (ID, start, end, text, type and optionally a concept, "
    "separated by tabs), or a relation (ID, type, concept, concept)"
)


def read_pubtator(path: Path) -> Iterator[Document]:
    """Stream the documents of a PubTator file, and log their number at the end.

    The text of a document is its title, a line end and its abstract: offsets count one character between the two.

    Raises:
        SqueezeError: as for `parse_pubtator`, or the file cannot be read.
    """
    return parse_pubtator(numbered_lines(path), str(path))


def parse_pubtator(lines: Iterable[tuple[int, str]], source: str) -> Iterator[Document]:
    """Parse the documents of numbered PubTator lines.

    Relations are counted and skipped. An exact copy of an earlier document is dropped (the training set of
    NCBI-disease has one).

    Args:
        lines: number and content of each line, without line ends.
        source: name of the source in error messages.

    Raises:
        SqueezeError: a line has another format; an annotation belongs to another document, reaches beyond the text or
            differs from it; two documents have one id; there is no document.
    """
    counts = DocumentCounts(source)
    for block in _blocks(lines, source):
        document = block.document(counts)
        if counts.add(document):
            yield document
    counts.report()


def pubtator_documents(lines: Iterable[tuple[int, str]], source: str, *, annotated: bool) -> Iterator[Document]:
    """Parse the documents of numbered PubTator lines, each by itself.

    Args:
        lines: number and content of each line, without line ends.
        source: name of the source in error messages.
        annotated: with their annotations; else these are not checked.

    Raises:
        SqueezeError: a line has another format, or belongs to another document; or as for `parse_pubtator`.
    """
    for block in _blocks(lines, source):
        yield (block if annotated else replace(block, rows=[])).document(DocumentCounts(source))


def pubtator_lines(document: Document) -> Iterator[str]:
    """Write a document as PubTator lines, with the empty line that ends it.

    The text before its first line end is the title. Later line ends become spaces. An entity without a type is an
    `UNTYPED`.

    Raises:
        SqueezeError: the id contains a separator of the format.
    """
    if not document.id or re.search(r"[|\s]", document.id):
        raise SqueezeError(
            f"{document.where}: the id {document.id!r} cannot be written as PubTator; use letters and digits"
        )
    title, _, abstract = document.text.partition("\n")
    yield f"{document.id}|t|{_one_line(title)}"
    yield f"{document.id}|a|{_one_line(abstract)}"
    for annotation in document.annotations:
        text = _one_line(annotation.text).replace("\t", " ")
        cells = (document.id, str(annotation.start), str(annotation.end), text, annotation.type or UNTYPED)
        yield "\t".join((*cells, annotation.id) if annotation.id else cells)
    yield ""


def _one_line(text: str) -> str:
    return text.replace("\n", " ").replace("\r", " ")


@dataclass
class _PubtatorBlock:
    """The lines of one document."""

    id: str
    where: str
    source: str
    texts: dict[str, str] = field(default_factory=dict)  # t, a
    rows: list[tuple[int, list[str]]] = field(default_factory=list)  # line number and cells of each annotation

    def document(self, counts: DocumentCounts) -> Document:
        """Build the document, and count what is skipped."""
        if "t" not in self.texts:
            raise SqueezeError(f"{self.where}: {self.id} has an abstract and no title; add {self.id}|t|TITLE before it")
        abstract = self.texts.get("a", "")
        bare = Document(self.id, self.texts["t"] + (f"\n{abstract}" if abstract else ""), (), self.where)
        annotations = []
        for number, cells in self.rows:
            where = f"{self.source}:{number}"
            if _is_relation(cells):
                counts.counts["relations skipped"] += 1
                continue
            annotation = _annotation(cells, where)
            annotations.append(align_annotation(bare, annotation, where))
            if bare.text[annotation.start : annotation.end].replace("\n", " ") != annotation.text:
                counts.counts["annotations that differ from the text in white space or accents; the text is used"] += 1
        return replace(bare, annotations=tuple(annotations))


def _blocks(lines: Iterable[tuple[int, str]], source: str) -> Iterator[_PubtatorBlock]:
    block: _PubtatorBlock | None = None
    for number, line in lines:
        if not line.strip():
            continue
        where = f"{source}:{number}"
        match = TEXT_LINE.match(line)
        if match:
            name, kind, text = match.groups()
            if block is None or name != block.id or kind == "t":
                if block is not None:
                    yield block
                block = _PubtatorBlock(name, where, source)
            if kind in block.texts:
                raise SqueezeError(f"{where}: a second abstract of {name}; remove one, or join the two")
            block.texts[kind] = text
        else:
            _block_of(line, block, where).rows.append((number, line.split("\t")))
    if block is not None:
        yield block


def _block_of(line: str, block: _PubtatorBlock | None, where: str) -> _PubtatorBlock:
    """Return the current block, if an annotation line belongs to it."""
    name, tab, _ = line.partition("\t")
    if not tab:
        raise SqueezeError(
            f"{where}: {line[:40]!r} is not a line of PubTator: {_EXPECTED}; correct or remove this line"
        )
    if block is None or name != block.id:
        above = f"the document above is {block.id}" if block else "there is no document above"
        raise SqueezeError(
            f"{where}: an annotation of the unknown document {name!r} ({above}); put it under the lines "
            f"{name}|t| and {name}|a|, or correct its id"
        )
    return block


def _is_relation(cells: list[str]) -> bool:
    """Recognise relations: four columns in BC5CDR, five in BioRED, with a type in place of the first offset."""
    return len(cells) in (4, 5) and cells[1][:1].isalpha()


def _annotation(cells: list[str], where: str) -> Annotation:
    cells = [*cells[:4], *(cell.strip() for cell in cells[4:])]
    if len(cells) < 5 or not cells[4]:
        raise SqueezeError(f"{where}: {len(cells)} columns, or no type: {_EXPECTED}; correct this line")
    if not (_is_offset(cells[1]) and _is_offset(cells[2])):
        raise SqueezeError(
            f"{where}: the offsets {cells[1]!r} and {cells[2]!r} of {cells[3]!r} are not numbers: {_EXPECTED}; "
            "correct this line"
        )
    return Annotation(int(cells[1]), int(cells[2]), cells[4], cells[3], cells[5] if len(cells) > 5 else "")


def _is_offset(cell: str) -> bool:
    return cell.isascii() and cell.isdigit() and len(cell) < 12
