"""Find the files of a corpus's sources, tell their formats, and read their articles."""

import gzip
import hashlib
import io
import json
import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from biosqueeze.corpora.article import Article, Deletion
from biosqueeze.corpora.jats import read_jats
from biosqueeze.corpora.parquet_records import SUFFIX as PARQUET
from biosqueeze.corpora.parquet_records import ParquetRecords
from biosqueeze.corpora.pubmed import read_pubmed
from biosqueeze.corpora.records import article_of_record, read_bioc_articles, read_json_lines, read_text
from biosqueeze.corpora.xml_stream import DamagedSourceError
from biosqueeze.data.lines import check_packer, data_suffix, is_beside_data, unpacked
from biosqueeze.data.records.hub import is_hub
from biosqueeze.data.text.corpus import files_below, is_shard, note_skipped
from biosqueeze.data.text.hub_corpus import HubCorpus
from biosqueeze.data.text.text_check import check_is_text, is_web_page, text_problem
from biosqueeze.errors import SqueezeError

JSON_LINES = (".jsonl", ".ndjson")
ARCHIVES = (".tar", ".tar.gz", ".tgz")
_TEXT = (".txt", ".text")
_XML = (".xml", ".nxml")
_SUFFIXES = (*_XML, *JSON_LINES, ".json", *_TEXT)
_BEGINNING = 1 << 16  # bytes that tell the format
_SHOWN_BYTES = 60  # of a file that is no XML
_XML_BEGINNING = re.compile(rb"<[?!A-Za-z_]")  # a text may begin with "<5% of the patients"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class MemberEnd:
    """The end of a file in an archive: the articles since the former end are those of this file."""

    name: str
    damage: str | None = None


Articles = Iterator[Article | Deletion | MemberEnd]


@dataclass(frozen=True)
class SourceFile:
    """A file of articles, or a data set on the Hub, and what it was when the sources were listed."""

    path: Path
    bytes: int
    modified: int = 0  # nanoseconds
    revision: str = ""  # of a data set on the Hub

    @property
    def hub(self) -> HubCorpus | None:
        """The data set on the Hub, or None for a file."""
        return HubCorpus.parse(str(self.path)) if self.revision else None

    @classmethod
    def of(cls, path: Path) -> "SourceFile":
        """Return the entry of a file."""
        facts = path.stat()
        return cls(path, facts.st_size, facts.st_mtime_ns)


def find_sources(names: tuple[str, ...]) -> list[SourceFile]:
    """Return the files of all sources, those of a directory (read recursively) in sorted order; hub:NAME counts as one.

    Raises:
        SqueezeError: a source does not exist, is no regular file, or is a directory without files of articles.
    """
    files = [file for name in names for file in _sources_of(name)]
    twice = [path for path, count in Counter(str(file.path) for file in files).items() if count > 1]
    if twice:
        raise SqueezeError(f"{twice[0]} is given twice; name each source once")
    return files


def _sources_of(name: str) -> list[SourceFile]:
    if is_hub(name):
        return [SourceFile(Path(name), 0, revision=HubCorpus.parse(name).revision())]
    return [SourceFile.of(path) for path in _files_of(Path(name).expanduser())]


def _files_of(path: Path) -> list[Path]:
    if path.is_file():
        if data_suffix(path) in (".csv", ".tsv"):
            raise SqueezeError(f"{path} is a table; write its texts as JSON lines, or one a line as .txt")
        check_is_text(path)
        return [path]
    if not path.is_dir():
        raise SqueezeError(f"there is no file or directory {path}; name PubMed or PMC XML, BioC, JSON lines or text")
    files, others = list[Path](), list[Path]()
    for each in files_below(path):
        (files if is_parquet(each) or _is_source(each) else others).append(each)
    if not files:
        expected = ", ".join((*_SUFFIXES, *ARCHIVES))
        raise SqueezeError(f"{path} holds no file of articles; expected {expected} or .gz, or {PARQUET}")
    note_skipped(path, len(files), [each for each in others if not is_beside_data(each)])
    return files


def is_parquet(path: Path) -> bool:
    """Return whether a file has Parquet's suffix."""
    return path.name.lower().endswith(PARQUET) and not is_beside_data(path)


def _is_source(path: Path) -> bool:
    return path.name.lower().removesuffix(".gz").endswith((*_SUFFIXES, *ARCHIVES)) and not is_beside_data(path)


class HashedFile(io.RawIOBase):
    """A file that computes the SHA-256 of what is read, and reports the number of bytes."""

    def __init__(self, file: BinaryIO, advance: Callable[[int], None]) -> None:
        self._file, self._advance = file, advance
        self._digest = hashlib.sha256()

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer, and return the number of bytes."""
        count: int = self._file.readinto(buffer)  # type: ignore[attr-defined] # a raw file
        self._digest.update(memoryview(buffer)[:count])
        self._advance(count)
        return count

    def close(self) -> None:
        """Leave the file open: a reader that is discarded closes what it reads, and the hash needs the rest."""

    def sha256(self) -> str:
        """Read the rest, and return the SHA-256 of the whole file."""
        while self.read(1 << 20):
            pass
        return self._digest.hexdigest()


@contextmanager
def _damage_explained() -> Iterator[None]:
    try:
        yield
    except DamagedSourceError:
        raise
    except SqueezeError as error:
        raise DamagedSourceError(str(error)) from error
    except (gzip.BadGzipFile, EOFError, zlib.error, tarfile.TarError) as error:
        raise DamagedSourceError(f"the compressed data is damaged ({error})") from error
    except UnicodeDecodeError as error:
        raise DamagedSourceError(f"not UTF-8 text (byte 0x{error.object[error.start]:02x})") from error
    except OSError as error:
        raise DamagedSourceError(f"it cannot be read ({error.strerror or error})") from error


class HashedRecords:
    """The records of a data set on the Hub; computes the SHA-256 of what is read."""

    def __init__(self, corpus: HubCorpus) -> None:
        self._corpus = corpus
        self._digest = hashlib.sha256()

    def articles(self, field: str) -> Iterator[Article]:
        """Yield the articles; `field` holds the text where the source names none."""
        for number, record in enumerate(self._corpus.records(), start=1):
            self._digest.update(json.dumps(record, sort_keys=True, default=str).encode())
            yield article_of_record(record, self._corpus.field or field, f"record {number}")

    def sha256(self) -> str:
        """Return the SHA-256 of the records that were read, as JSON."""
        return self._digest.hexdigest()


OpenSource = HashedFile | HashedRecords | ParquetRecords


@contextmanager
def open_source(source: SourceFile, advance: Callable[[int], None]) -> Iterator[OpenSource]:
    """Open a source, whose bytes are counted by `advance` as they are read."""
    if source.hub is not None:
        yield HashedRecords(source.hub)
        return
    if is_parquet(source.path):
        yield ParquetRecords(source.path, advance)
        return
    with source.path.open("rb", buffering=0) as file:
        yield HashedFile(file, advance)


def read_source(file: OpenSource, path: Path, field: str) -> Articles:
    """Yield the articles of a file, whose format is recognised by its beginning; the file is never held whole.

    After the articles of a file in an archive follows its `MemberEnd`, which says whether that file is damaged.

    Args:
        file: as `open_source` opens it.
        path: its name shows whether it is an archive, and is part of messages.
        field: the field of a JSON record that holds the text.

    Raises:
        DamagedSourceError: it is cut short, damaged, or of no known format.
    """
    if not isinstance(file, HashedFile):
        yield from file.articles(field)
        return
    with _damage_explained():
        if path.name.lower().endswith(ARCHIVES):
            yield from _read_archive(file, path, field)
            return
        stream = _unpacked(io.BufferedReader(file, 1 << 20), path.name)
        yield from read_text(stream, in_blocks=True) if is_shard(path) else _read_stream(stream, path.name, field)


class _Header(tarfile.TarInfo):
    """A header of an archive; `tarfile` takes one that is damaged or cut short for the end of the archive."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> "_Header":
        """Read the next header."""
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined] # the end mark; the stubs lack it
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"a header is damaged or cut short: {error}") from error


def _open_archive(file: HashedFile | BinaryIO) -> tarfile.TarFile:
    return tarfile.open(fileobj=file, mode="r|*", tarinfo=_Header)


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while (member := archive.next()) is not None:
        archive.members.clear()  # type: ignore[attr-defined] # tarfile keeps every header
        yield member


def _read_archive(file: HashedFile, path: Path, field: str) -> Articles:
    full_texts: set[Path] | None = None
    with _open_archive(file) as archive:
        for member in _members(archive):
            name = Path(member.name)
            if not member.isfile() or not _is_source(name):
                continue
            if data_suffix(name) in _TEXT:
                # Searched for only here: few archives have text, and a package may have it before its article.
                full_texts = _folders_of_full_texts(path) if full_texts is None else full_texts
                if name.parent in full_texts:
                    continue
            yield from _read_member(archive.extractfile(member), member.name, field)


def _folders_of_full_texts(path: Path) -> set[Path]:
    """Return the folders of an archive with .nxml files, beside which PMC puts supplements in plain text."""
    with path.open("rb") as file, _open_archive(file) as archive:
        names = (Path(member.name) for member in _members(archive))
        return {name.parent for name in names if data_suffix(name) == ".nxml"}


def _read_member(stream: Any, name: str, field: str) -> Articles:
    """Yield the articles of a file in an archive, and its end.

    Raises:
        DamagedSourceError: the archive itself is damaged.
    """
    damage = None
    try:
        with _damage_explained():
            yield from _read_stream(_unpacked(stream, name), name, field)
    except DamagedSourceError as error:
        cause = error.__cause__
        if isinstance(cause, tarfile.TarError | OSError) and not isinstance(cause, gzip.BadGzipFile):
            raise
        damage = str(error)
    yield MemberEnd(name, damage)


def _unpacked(stream: Any, name: str) -> Any:
    """Return the stream, decompressed where it is gzip.

    Raises:
        DamagedSourceError: there is nothing in it, where there must be something.
    """
    if not stream.peek(1) and name.lower().endswith((".gz", *_XML)):
        raise DamagedSourceError("it is empty; fetch it again")
    return unpacked(stream, name) if stream.peek(2)[:2] == b"\x1f\x8b" else stream


def _read_stream(stream: Any, name: str, field: str) -> Articles:
    check_packer(stream, name)
    if stream.peek(len(_BYTE_ORDER_MARK)).startswith(_BYTE_ORDER_MARK):
        stream.read(len(_BYTE_ORDER_MARK))
    beginning = stream.peek(_BEGINNING)[:_BEGINNING].lstrip()
    read = _reader_of(beginning, name.lower().removesuffix(".gz"), field)
    return read(stream)


def _reader_of(beginning: bytes, name: str, field: str) -> Callable[[BinaryIO], Articles]:
    if is_web_page(beginning.decode(errors="replace")):
        raise DamagedSourceError("it is a web page (HTML), perhaps of a failed download; fetch it again")
    if _XML_BEGINNING.match(beginning):
        return _xml_reader(beginning)
    if beginning.startswith(b"PMID- "):
        raise DamagedSourceError("it is in PubMed's MEDLINE format, which is not read; fetch PubMed's XML instead")
    if beginning and name.endswith(_XML):
        text = beginning[:_SHOWN_BYTES].decode(errors="replace")
        raise DamagedSourceError(f"it is no XML in UTF-8, but begins with {text!r}; fetch it again")
    if name.endswith(JSON_LINES):
        return lambda stream: read_json_lines(stream, field)
    if name.endswith(".json"):
        return read_bioc_articles
    if problem := text_problem(beginning.decode(errors="replace")):
        raise DamagedSourceError(problem)
    return read_text


def _xml_reader(beginning: bytes) -> Callable[[BinaryIO], Articles]:
    readers = {b"<Pubmed": read_pubmed, b"<MedlineCitation": read_pubmed, b"<collection": read_bioc_articles}
    found = {beginning.find(mark): read for mark, read in readers.items() if mark in beginning}
    if found:
        return found[min(found)]
    if b"article" in beginning:
        return read_jats
    raise DamagedSourceError("it is XML, but neither PubMed, JATS nor BioC")
