"""Read the standoff annotations of brat (Stenetorp et al. 2012) and of the BioNLP shared tasks.

Beside the .txt of a document, brat has an .ann. A shared task has the entities as .a1, and what participants were to
find, events, relations and further entities, as .a2.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from biosqueeze.data.annotations.annotated import (
    Annotation,
    Document,
    DocumentCounts,
    align_annotation,
    check_pieces,
    fits,
    linked_relations,
)
from biosqueeze.data.lines import numbered_lines, read_document
from biosqueeze.data.records.splits import STANDOFF_SUFFIXES
from biosqueeze.errors import SqueezeError

_RELATION = re.compile(r"R\d+\t(\S+) \S+?:(\S+) \S+?:(\S+)\s*")
_TRIGGER = re.compile(r"E\d+\t\S+?:(T\d+)")
_ENTITY = re.compile(r"(T\d+)\t(\S+) (\d{1,9} \d{1,9}(?:;\d{1,9} \d{1,9})*)\t(.*)")


def is_brat(folder: Path) -> bool:
    """Return whether a folder holds .ann or .a1 files, at any depth."""
    return any(_standoff_files(folder))


def read_brat(folder: Path) -> Iterator[Document]:
    """Stream the documents below a folder in the order of their paths, and log their number at the end.

    Of an annotation in several pieces the span is from the first character to the last. Events, attributes and notes,
    the triggers of the events of an .a2, and texts without annotations are counted and skipped. Documents without
    an .a2, as in a test split, are counted too.

    Raises:
        SqueezeError: annotations have no .txt, or do not agree with the text.
    """
    counts = DocumentCounts(str(folder))
    files = sorted(_standoff_files(folder))
    texts = {path.with_suffix("") for path in folder.rglob("*.txt")}
    if left_out := texts - {path.with_suffix("") for path in files}:
        counts.counts["texts without an .ann or .a1 skipped"] = len(left_out)
    for path in files:
        document = _document(path, path.relative_to(folder).with_suffix("").as_posix(), counts)
        if counts.add(document):
            yield document
    counts.report()


def _standoff_files(folder: Path) -> Iterator[Path]:
    return (path for suffix in STANDOFF_SUFFIXES for path in folder.rglob(f"*{suffix}"))


def _document(annotations: Path, name: str, counts: DocumentCounts) -> Document:
    text = annotations.with_suffix(".txt")
    if not text.is_file():
        raise SqueezeError(f"{annotations} has no {text.name} beside it; they belong together: copy the text there")
    lines = _lines(annotations, counts)
    bare = Document(name, _counted_text(text, [line for _, line in lines]), (), str(annotations))
    events = (_TRIGGER.match(line) for _, line in lines if annotations.suffix == ".a1")
    triggers = {match[1] for match in events if match}
    found = [
        _annotation(line, where, bare, counts)
        for where, line in lines
        if line.partition("\t")[0] not in triggers and not _RELATION.fullmatch(line)
    ]
    if triggers:
        counts.counts["triggers of events skipped"] += len(triggers)
    annotated = tuple(annotation for annotation in found if annotation)
    relations = (_RELATION.fullmatch(line) for _, line in lines)
    arguments = ((match[1], (match[2], match[3])) for match in relations if match)
    linked = linked_relations(arguments, {each.id: each for each in annotated}, counts.counts)
    return replace(bare, annotations=annotated, relations=linked)


def _lines(annotations: Path, counts: DocumentCounts) -> list[tuple[str, str]]:
    """Return place and content of each line of a file, and of the .a2 beside an .a1."""
    paths = [annotations]
    if annotations.suffix == ".a1":
        second = annotations.with_suffix(".a2")
        if second.is_file():
            paths.append(second)
        else:
            counts.counts["documents without an .a2"] += 1
    return [(f"{path}:{number}", line) for path in paths for number, line in numbered_lines(path) if line.strip()]


def _counted_text(path: Path, annotations: Sequence[str]) -> str:
    """Return the text in whose characters annotations are counted.

    brat counts a byte order mark and both characters of a Windows line end; other tools count neither.
    """
    plain = "\n".join(read_document(path))
    as_written = path.read_bytes().decode("utf-8")
    entities = [(_spans(match[3]), match[4]) for line in annotations if (match := _ENTITY.fullmatch(line))]

    def fitting(text: str) -> int:
        return sum(fits(text, spans, covered) for spans, covered in entities)

    return max((plain, as_written), key=fitting)


def _annotation(line: str, where: str, document: Document, counts: DocumentCounts) -> Annotation | None:
    if not line.startswith("T"):
        counts.counts["events, attributes and notes skipped"] += 1
        return None
    match = _ENTITY.fullmatch(line)
    if match is None:
        raise SqueezeError(
            f"{where}: {line[:60]!r} is not an annotation of brat; expected T1, a tab, the type with start and end, a "
            "tab, and the text"
        )
    spans, text = _spans(match[3]), match[4]
    start, end = min(start for start, _ in spans), max(end for _, end in spans)
    if len(spans) > 1:
        counts.counts["discontinuous annotations read as one span from first to last character"] += 1
        check_pieces(document.text, spans, text, where)
        text = document.text[start:end]
    return align_annotation(document, Annotation(start, end, match[2], text, match[1]), where)


def _spans(offsets: str) -> list[tuple[int, int]]:
    """Return start and end of each piece of an annotation."""
    return [(int(start), int(end)) for start, end in (piece.split() for piece in offsets.split(";"))]
