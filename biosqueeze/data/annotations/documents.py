"""Read texts with annotated spans from PubTator, BioC, XML of pairs or tables; the format of a file is detected."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from biosqueeze.data.annotations.annotated import Document
from biosqueeze.data.annotations.bioc import read_bioc
from biosqueeze.data.annotations.entity_tables import read_entity_tables
from biosqueeze.data.annotations.pair_xml import is_pair_xml, read_pair_xml
from biosqueeze.data.annotations.pubtator import TEXT_LINE, read_pubtator
from biosqueeze.data.lines import data_suffix, read_beginning
from biosqueeze.data.records.splits import table_beside
from biosqueeze.errors import SqueezeError

DocumentFormat = Literal["pubtator", "bioc", "pairs", "tables"]
_PASSAGES = re.compile(r'"passages"\s*:\s*\[\s*\{')
_OFFSET = re.compile(r'"offset"\s*:')  # of a passage; those of BigBio's records have "offsets"


def read_documents(path: Path) -> Iterator[Document]:
    """Stream the documents of a file; its format is detected.

    Raises:
        SqueezeError: it has none of the formats, or is damaged.
    """
    kind = detect_format(path)
    if kind is None:
        raise SqueezeError(
            f"{path} is neither PubTator (ID|t|TITLE in its first line) nor BioC (XML, or JSON with documents "
            "and passages) nor XML of sentences with entities; convert it to one of these"
        )
    match kind:
        case "pubtator":
            return read_pubtator(path)
        case "bioc":
            return read_bioc(path)
        case "pairs":
            return read_pair_xml(path)
        case "tables":
            return read_entity_tables(path)


def detect_format(path: Path) -> DocumentFormat | None:
    """Return the format that the beginning of a file has, or None if it is another one.

    Raises:
        SqueezeError: it cannot be read.
    """
    return format_of_text(path, read_beginning(path))


def format_of_text(path: Path, text: str) -> DocumentFormat | None:
    """Return the format of a file from the beginning of its text, or None if it is another one."""
    kind = data_suffix(path)
    if kind == ".tsv" and table_beside(path, "entities"):
        return "tables"
    if kind == ".xml":
        return "pairs" if is_pair_xml(text) else "bioc"
    if kind == ".json":
        passages = _PASSAGES.search(text)
        return "bioc" if passages and _OFFSET.search(text, passages.end()) else None
    first = next((line for line in text.split("\n") if line.strip()), "")
    return "pubtator" if TEXT_LINE.match(first.lstrip()) else None
