"""PubTator: a title line, an abstract line and tab-separated annotations for each document (Wei et al. 2013)."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from biosqueeze.data.annotated import Annotation, Document, DocumentCounts, align_annotation
from biosqueeze.data.lines import numbered_lines
from biosqueeze.errors import SqueezeError

TEXT_LINE = re.compile(r"([^|\t]+)\|([ta])\|(.*)", re.DOTALL)
_EXPECTED = (
    "expected ID|t|TITLE, ID|a|ABSTRACT, an annotation (ID, start, end, text, type and perhaps a concept, "
    "parted by tabs), or a relation (ID, type, concept, concept)"
)


def read_pubtator(path: Path) -> Iterator[Document]:
    """Stream the documents of a PubTator file; at the end it is said how many they were.

    The text of a document is its title, a line end and its abstract: the format counts one character between.

    Raises:
        SqueezeError: as for `parse_pubtator`, or the file cannot be read.
    """
    return parse_pubtator(numbered_lines(path), str(path))


def parse_pubtator(lines: Iterable[tuple[int, str]], source: str) -> Iterator[Document]:
    """Documents of numbered PubTator lines.

    Relations are counted and left out; a document that stands there twice, equal in all, is kept once (the
    training set of NCBI-disease has one such).

    Args:
        lines: number and content of each line, without line ends.
        source: what errors call it.

    Raises:
        SqueezeError: a line is none of the format's; an annotation belongs to another document, reaches beyond
            the text, or is not what stands there; an id stands for two documents; there is no document.
    """
    census = DocumentCounts(source)
    for block in _blocks(lines, source):
        document = block.document(census)
        if census.is_new(document):
            yield document
    census.say()


def pubtator_texts(lines: Iterable[tuple[int, str]], source: str) -> Iterator[Document]:
    """Documents of numbered PubTator lines without their annotations, whose offsets and texts are not looked at.

    Raises:
        SqueezeError: a line is none of the format's, or belongs to another document.
    """
    for block in _blocks(lines, source):
        yield replace(block, rows=[]).document(DocumentCounts(source))


def pubtator_lines(document: Document) -> Iterator[str]:
    """A document in PubTator, line by line, with the empty line that ends it.

    What stands before the first line end of the text is the title. Line ends behind it become spaces.

    Raises:
        SqueezeError: its id holds a sign that parts the format's columns.
    """
    if not document.id or re.search(r"[|\s]", document.id):
        raise SqueezeError(
            f"{document.where}: the id {document.id!r} cannot be written as PubTator; take letters, digits"
        )
    title, _, abstract = document.text.partition("\n")
    yield f"{document.id}|t|{_one_line(title)}"
    yield f"{document.id}|a|{_one_line(abstract)}"
    for one in document.annotations:
        cells = (document.id, str(one.start), str(one.end), _one_line(one.text).replace("\t", " "), one.type)
        yield "\t".join((*cells, one.id) if one.id else cells)
    yield ""


def _one_line(text: str) -> str:
    return text.replace("\n", " ").replace("\r", " ")


@dataclass
class _Block:
    """The lines of one document."""

    id: str
    where: str
    source: str
    texts: dict[str, str] = field(default_factory=dict)  # t, a
    rows: list[tuple[int, list[str]]] = field(default_factory=list)

    def document(self, census: DocumentCounts) -> Document:
        """Put the lines together; counts what is left out."""
        if "t" not in self.texts:
            raise SqueezeError(f"{self.where}: {self.id} has an abstract and no title; add {self.id}|t|TITLE before it")
        abstract = self.texts.get("a", "")
        bare = Document(self.id, self.texts["t"] + (f"\n{abstract}" if abstract else ""), (), self.where)
        made = []
        for number, cells in self.rows:
            where = f"{self.source}:{number}"
            if _is_relation(cells):
                census.counts["relations, left out"] += 1
                continue
            given = _annotation(cells, where)
            made.append(align_annotation(bare, given, where))
            if bare.text[given.start : given.end].replace("\n", " ") != given.text:
                census.counts["annotations that differ from the text in white space, taken as it stands"] += 1
        return replace(bare, annotations=tuple(made))


def _blocks(lines: Iterable[tuple[int, str]], source: str) -> Iterator[_Block]:
    block: _Block | None = None
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
                block = _Block(name, where, source)
            if kind in block.texts:
                raise SqueezeError(f"{where}: a second abstract of {name}; remove one, or join the two")
            block.texts[kind] = text
        else:
            _owner(block, line, where).rows.append((number, line.split("\t")))
    if block is not None:
        yield block


def _owner(block: _Block | None, line: str, where: str) -> _Block:
    name, tab, _ = line.partition("\t")
    if not tab:
        raise SqueezeError(f"{where}: {line[:40]!r} is no line of PubTator: {_EXPECTED}; mend or remove it")
    if block is None or name != block.id:
        stands = f"the document above is {block.id}" if block else "no document stands above"
        raise SqueezeError(
            f"{where}: an annotation of the unknown document {name!r} ({stands}); put it under the lines "
            f"{name}|t| and {name}|a|, or correct its id"
        )
    return block


def _is_relation(cells: list[str]) -> bool:
    """BC5CDR has four columns, BioRED five; a type stands where an annotation has its first offset."""
    return len(cells) in (4, 5) and cells[1][:1].isalpha()


def _annotation(cells: list[str], where: str) -> Annotation:
    cells = [*cells[:4], *(cell.strip() for cell in cells[4:])]
    if len(cells) < 5 or not cells[4]:
        raise SqueezeError(f"{where}: {len(cells)} columns, or no type: {_EXPECTED}; mend this line")
    if not (_is_offset(cells[1]) and _is_offset(cells[2])):
        raise SqueezeError(
            f"{where}: {cells[1]!r} and {cells[2]!r} are no offsets of {cells[3]!r}: {_EXPECTED}; mend this line"
        )
    return Annotation(int(cells[1]), int(cells[2]), cells[4], cells[3], cells[5] if len(cells) > 5 else "")


def _is_offset(cell: str) -> bool:
    return cell.isascii() and cell.isdigit() and len(cell) < 12
