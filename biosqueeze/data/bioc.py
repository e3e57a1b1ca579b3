"""BioC (Comeau et al. 2013) as XML or JSON, through the `bioc` package (extra `bioc`)."""

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from biosqueeze.data.annotated import Annotation, Census, Document, placed
from biosqueeze.data.lines import numbered_lines
from biosqueeze.errors import SqueezeError, require

if TYPE_CHECKING:
    from bioc import BioCAnnotation, BioCDocument

_CONCEPT_KEYS = ("identifier", "Identifier", "MESH", "NCBI GENE")
_WIDEST_GAP = 1_000_000


def read_bioc(path: Path) -> Iterator[Document]:
    """Stream the documents of a BioC file; at the end it is said how many they were, and what was odd.

    The text has each passage or sentence at its own offset; a line end and spaces fill what lies between. An
    annotation of several locations stands for the whole stretch from its first to its last character.

    Args:
        path: BioC XML or JSON (a collection, or PubTator 3's list of documents), plain or with .gz.

    Raises:
        SqueezeError: the extra is not installed; the file is damaged; an annotation reaches beyond the text or
            is not what stands there; an id stands for two documents; there is no document.
    """
    census = Census(str(path))
    for number, raw in enumerate(_read(path), start=1):
        document = _document(raw, f"{path} document {number}", census)
        if census.is_new(document):
            yield document
    census.say()


def _read(path: Path) -> "Sequence[BioCDocument]":
    require("bioc", "bioc")
    with _opened(path) as stream:
        first = stream.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    return _read_json(path) if first in (b"{", b"[") else _read_xml(path)


def _read_xml(path: Path) -> "Sequence[BioCDocument]":
    from bioc import biocxml
    from lxml import etree

    try:
        with _opened(path) as stream:
            collection = biocxml.load(stream)
    except etree.XMLSyntaxError as error:
        raise SqueezeError(f"{path}:{error.lineno}: not XML ({error.msg}); mend it there, or fetch it again") from error
    except (KeyError, TypeError, ValueError) as error:
        raise SqueezeError(
            f"{path} is XML and not BioC: a passage without an offset, or an annotation without its id or "
            f"location ({error}); check it against BioC.dtd"
        ) from error
    documents: Sequence[BioCDocument] = collection.documents
    return documents


def _read_json(path: Path) -> "Sequence[BioCDocument]":
    from bioc import biocjson

    try:
        value = json.loads("\n".join(line for _, line in numbered_lines(path)))
    except json.JSONDecodeError as error:
        raise SqueezeError(f"{path}:{error.lineno}: not JSON ({error.msg} at column {error.colno})") from error
    made = []
    for number, raw in enumerate(_listed(value, path), start=1):
        try:
            made.append(biocjson.fromJSON(raw, bioctype="BioCDocument"))
        except (KeyError, TypeError) as error:
            raise SqueezeError(
                f"{path} document {number}: not a BioC document: it or a part of it lacks the field {error}; add it"
            ) from error
    return made


def _listed(value: Any, path: Path) -> list[Any]:
    """The documents of a collection, or of an object with one list in it, as PubTator 3 gives them."""
    if isinstance(value, dict):
        lists = [item for item in value.values() if isinstance(item, list)]
        value = value.get("documents", lists[0] if len(lists) == 1 else None)
    if not isinstance(value, list):
        raise SqueezeError(f'{path} is JSON and not BioC: no list of "documents" in it; check what wrote it')
    return value


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as plain:
            if path.suffix == ".gz":
                with gzip.GzipFile(fileobj=plain) as unpacked:
                    yield unpacked  # type: ignore[misc] # GzipFile reads as a BinaryIO does
            else:
                yield plain
    except (OSError, EOFError, zlib.error) as error:
        raise SqueezeError(f"{path} cannot be read ({error}); check the path, or fetch it again") from error


@dataclass
class _Text:
    """Text that grows by pieces, each at its own offset."""

    where: str
    pieces: list[str] = field(default_factory=list)
    length: int = 0

    def add(self, offset: int, piece: str) -> None:
        """Put a piece at its offset."""
        gap = _number(offset, self.where) - self.length
        if not 0 <= gap <= _WIDEST_GAP:
            raise SqueezeError(
                f"{self.where}: a passage at offset {offset}, but the text before it ends at {self.length}; "
                "offsets count the characters of the whole document: correct them"
            )
        filler = "\n" + " " * (gap - 1) if gap and self.length else " " * gap
        self.pieces += [filler, piece]
        self.length = offset + len(piece)


def _document(raw: "BioCDocument", where: str, census: Census) -> Document:
    name = str(raw.id or "")
    where = f"{where} ({name})"
    text = _Text(where)
    annotations = list(raw.annotations)
    for passage in raw.passages:
        annotations += passage.annotations
        if passage.text:
            text.add(passage.offset, passage.text)
        for sentence in passage.sentences:
            annotations += sentence.annotations
            if sentence.text and not passage.text:
                text.add(sentence.offset, sentence.text)
    bare = Document(name, "".join(text.pieces), (), where)
    spans = [_annotation(bare, one, where, census) for one in annotations]
    return replace(bare, annotations=tuple(span for span in spans if span))


def _annotation(document: Document, raw: "BioCAnnotation", where: str, census: Census) -> Annotation | None:
    if not raw.locations:
        census.counts["annotations without a location, left out"] += 1
        return None
    spans = [(_number(place.offset, where), _number(place.length, where)) for place in raw.locations]
    start, end = min(offset for offset, _ in spans), max(map(sum, spans))
    text = raw.text or ""
    if len(raw.locations) > 1:
        census.counts["discontinuous annotations, taken from their first to their last character"] += 1
        text = document.text[max(start, 0) : end]
    concept = next((str(raw.infons[key]) for key in _CONCEPT_KEYS if raw.infons.get(key)), "")
    kind = raw.infons.get("type")
    if not kind:
        raise SqueezeError(f'{where}: the annotation {raw.id} has no type; add <infon key="type"> to it')
    return placed(document, Annotation(start, end, str(kind), text, concept), f"{where} annotation {raw.id}")


def _number(value: Any, where: str) -> int:
    """An offset or a length; JSON may hold anything there."""
    if not isinstance(value, int):
        raise SqueezeError(f"{where}: {value!r} is no offset or length; write a whole number of characters")
    return value
