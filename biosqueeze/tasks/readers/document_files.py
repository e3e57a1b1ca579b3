"""Find the annotated documents of a split: a file of PubTator, BioC, XML of pairs or a table, or a folder of files."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from biosqueeze.data.annotations.annotated import Document
from biosqueeze.data.annotations.brat import is_brat, read_brat
from biosqueeze.data.annotations.documents import detect_format, read_documents
from biosqueeze.data.annotations.pair_xml import has_pair_xml, read_pair_xml
from biosqueeze.data.records.splits import abstracts_of, find_split, split_folders, splits_within, word_files
from biosqueeze.errors import SqueezeError

_FORMAT_NAMES = {"pubtator": "PubTator", "bioc": "BioC", "pairs": "XML of pairs", "tables": "tables"}


def find_source(directory: Path, split: str, suffixes: Sequence[str]) -> Path | None:
    """Return the file of a split by its usual name, its folder, or the only annotated file that it names.

    Args:
        directory: where to search.
        split: one of train, dev and test.
        suffixes: of files by their usual name, in order of preference.

    Raises:
        SqueezeError: several annotated files have the split in their names.
    """
    usual = find_split(directory, split, suffixes) or find_folder(directory, split) or abstracts_of(directory, split)
    if usual is not None:
        return usual
    named = [path for path in sorted(directory.iterdir()) if path.is_file() and _is_named(path, split)]
    annotated = [path for path in named if detect_format(path)]
    if len(annotated) > 1:
        raise SqueezeError(
            f"{directory}: {' and '.join(path.name for path in annotated)} could both be the {split} split; "
            f"rename the right one to {split}.pubtator or {split}.xml, or move it to another directory"
        )
    return annotated[0] if annotated else None


def find_folder(directory: Path, split: str) -> Path | None:
    """Return the folder of a split, such as train/, with documents in several files; None without one.

    They are annotated, or columns of words.
    """
    folders = split_folders(directory, split)
    return next((each for each in folders if is_brat(each) or has_pair_xml(each) or word_files(each)), None)


def document_format(source: Path) -> str | None:
    """Return the name of the format of annotated documents, None for other files."""
    if source.is_dir():
        return "brat" if is_brat(source) else _FORMAT_NAMES["pairs"] if has_pair_xml(source) else None
    kind = detect_format(source)
    return _FORMAT_NAMES[kind] if kind else None


def documents_in(source: Path) -> Iterator[Document]:
    """Stream the documents of a file or folder that `find_source` has found."""
    if not source.is_dir():
        return read_documents(source)
    return read_brat(source) if is_brat(source) else read_pair_xml(source)


def _is_named(path: Path, split: str) -> bool:
    """Return whether the name of a file mentions this split and no other (not train_dev.txt), with a known suffix."""
    suffixes = (".txt", ".pubtator", ".xml", ".json")
    return splits_within(path.name) == (split,) and path.name.lower().removesuffix(".gz").endswith(suffixes)
