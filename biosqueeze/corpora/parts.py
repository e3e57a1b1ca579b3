"""Read some files of the sources, and write their sentences as one part of the corpus; a worker does one part."""

import gzip
import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biosqueeze.corpora.article import KINDS, Article, Deletion
from biosqueeze.corpora.decontamination import TestSentences
from biosqueeze.corpora.filters import ArticleFilters, KeptText
from biosqueeze.corpora.gzip_files import FAST, gzip_without_time
from biosqueeze.corpora.selection import ArticleTable
from biosqueeze.corpora.settings import CorpusSettings
from biosqueeze.corpora.sources import SourceFile, open_source, read_source
from biosqueeze.corpora.xml_stream import EXTRA, DamagedSourceError
from biosqueeze.errors import SqueezeError, require
from biosqueeze.files import flush, read_json, write_json

PERMUTATIONS = 128
SHINGLE_WORDS = 5
_AFTER_DOCUMENT = b"\n\n"
MOST_FILES = 10_000
"""Files in a part at most, so that the report of a part of small files can be read again."""
# Ids of text may be numbers within a file, and an equal one no later version.
_NUMBERED = ("pubmed", "pmc", "bioc")
# Ids that are noted with the number of rows before them.
_NOTED = ("withdrawn", "dropped")
_MOST_REPORT_BYTES = 1 << 26  # a test sentence that is common has an entry for each article with it
_MOST_BYTES = np.iinfo(np.uint32).max
_ROW = np.dtype(
    [
        ("ids", "u8"), ("texts", "u8"), ("priorities", "u8"), ("bytes", "u4"), ("sentences", "u4"), ("words", "u4"),
        ("kinds", "u1"), ("damaged", "?"),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """Files that are read together, and where their sentences go."""

    number: int
    files: tuple[SourceFile, ...]
    folder: Path

    def file(self, ending: str) -> Path:
        """Return a file of the part."""
        return self.folder / f"{self.number:06d}.{ending}"

    @property
    def is_done(self) -> bool:
        """Whether the part was read to its end, and its files are as they were then."""
        report = self.file("json")
        return report.is_file() and read_json(report, _MOST_REPORT_BYTES)["states"] == self.states

    @property
    def states(self) -> list[list[Any]]:
        """Size, time and revision of its files, by which a file is recognised as another one."""
        return [[file.bytes, file.modified, file.revision] for file in self.files]

    def flush(self) -> None:
        """Flush the files of the part to the disk."""
        for path in self.folder.glob(f"{self.number:06d}.*"):
            flush(path)


@dataclass
class SourceReport:
    """What a file of the sources held; a damaged file in an archive, ARCHIVE:MEMBER, has an entry of its own."""

    path: str
    bytes: int
    sha256: str = ""
    articles: int = 0
    damage: str | None = None


@dataclass
class PartReport:
    """The files of a part, and the articles that the filters dropped."""

    sources: list[SourceReport] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    contaminated: list[tuple[str, str, str]] = field(default_factory=list)  # source, id, place of the test sentence
    lacking: dict[str, list[str]] = field(default_factory=dict)
    """Sources in which no record has the field with the text, each with the fields of its last record."""
    empty: list[str] = field(default_factory=list)  # sources without articles, deletions and damage
    no_languages: list[str] = field(default_factory=list)  # values of languages that are no codes

    def write(self, part: Part) -> None:
        """Write the report, which marks the part as done."""
        write_json(part.file("json"), {**vars(self), "sources": list(map(asdict, self.sources)), "states": part.states})

    @classmethod
    def read(cls, part: Part) -> "PartReport":
        """Read the report of a part that is done."""
        facts = read_json(part.file("json"), _MOST_REPORT_BYTES)
        del facts["states"]
        facts["sources"] = [SourceReport(**source) for source in facts["sources"]]
        facts["contaminated"] = [tuple(item) for item in facts["contaminated"]]
        return cls(**{**facts, "dropped": Counter(facts["dropped"])})


@dataclass
class _PartWriter:
    """The open files of a part; its rows and signatures are written at once, so that they take no memory."""

    part: Part
    settings: CorpusSettings
    text: IO[bytes]
    names: IO[bytes]
    rows: IO[bytes]
    signatures: IO[bytes]
    count: int = 0  # rows
    damaged: list[tuple[int, int]] = field(default_factory=list)  # first and end of rows of damaged files
    withdrawn: "array[int]" = field(default_factory=lambda: array("Q"))  # of each an id, and the rows before it
    dropped: "array[int]" = field(default_factory=lambda: array("Q"))

    def add(self, article: Article, kept: KeptText) -> None:
        """Append one document."""
        joined = "\n".join(kept.sentences)
        raw = joined.encode("utf-8", errors="replace")
        self.text.write(raw + _AFTER_DOCUMENT)
        self.names.write(article.id.encode("utf-8", errors="replace") + b"\n")
        identity, priority = _text_hashes(joined, self.settings.seed)
        number = id_hash(article.kind, article.id)
        size = min(len(raw), int(_MOST_BYTES))
        kind = KINDS.index(article.kind)
        row = (number, identity, priority, size, len(kept.sentences), kept.words, kind, False)
        self.rows.write(np.array([row], dtype=_ROW).tobytes())
        self.count += 1
        if self.settings.near_duplicates is not None:
            self.signatures.write(minhash(raw.decode()).tobytes())

    def drop(self, article: Article) -> None:
        """Note an article that a filter dropped: no older version of it may be kept in its place."""
        if number := id_hash(article.kind, article.id):
            self.dropped.extend((number, self.count))

    def withdraw(self, deletion: Deletion) -> None:
        """Note an article that its source withdraws."""
        self.withdrawn.extend((id_hash(deletion.kind, deletion.id), self.count))

    def finish(self) -> None:
        """Mark the rows of damaged files, and write the tables."""
        self.rows.flush()
        if self.damaged:
            rows = np.memmap(self.part.file("rows"), dtype=_ROW, mode="r+")
            for first, end in self.damaged:
                rows["damaged"][first:end] = True
            rows.flush()
        for name in _NOTED:
            np.save(self.part.file(f"{name}.npy"), np.array(getattr(self, name), dtype=np.uint64).reshape(-1, 2))


class _Mark(NamedTuple):
    """What was read before a file, for the case that it is damaged."""

    articles: int
    rows: int
    withdrawn: int
    dropped: int
    contaminated: int
    reasons: Counter[str]

    @classmethod
    def of(cls, writer: _PartWriter, filters: ArticleFilters, articles: int = 0) -> "_Mark":
        """Return what was read by now."""
        noted = len(writer.withdrawn), len(writer.dropped), len(filters.contaminated)
        return cls(articles, writer.count, *noted, filters.dropped.copy())

    def restore(self, writer: _PartWriter, filters: ArticleFilters) -> None:
        """Mark the rows since then as those of a damaged file, and forget all else."""
        if self.rows < writer.count:
            writer.damaged.append((self.rows, writer.count))
        del writer.withdrawn[self.withdrawn :], writer.dropped[self.dropped :]
        del filters.contaminated[self.contaminated :]
        filters.dropped.clear()
        filters.dropped.update(self.reasons)


def write_part(
    part: Part,
    advance: Callable[[int], None],
    *,
    settings: CorpusSettings,
    against: TestSentences | None,
    strict: bool,
) -> None:
    """Read the files of a part, and write its documents, tables and report; the report comes last.

    Args:
        part: its files are read, and its other files are written.
        advance: is called with the bytes that were read.
        settings: what is kept of an article.
        against: test sentences; articles that contain one are dropped.
        strict: whether a damaged file is an error, instead of being skipped.

    Raises:
        SqueezeError: with `strict`, a file is damaged.
    """
    filters = ArticleFilters(settings, against)
    report = PartReport(dropped=filters.dropped)
    part.file("json").unlink(missing_ok=True)  # of an earlier run, whose files were others
    with _open_part(part, settings) as writer:
        for file in part.files:
            sources = _read_file(file, writer, filters, report, advance)
            damaged = next((source for source in sources if source.damage), None)
            if strict and damaged:
                raise SqueezeError(f"{damaged.path}: {damaged.damage}; download it again, or leave out --strict")
            report.sources += sources
            report.contaminated += [(str(file.path), *item) for item in filters.contaminated]
            filters.contaminated.clear()
        writer.finish()
    report.no_languages = sorted(filters.no_languages)
    part.flush()
    report.write(part)


@contextmanager
def _open_part(part: Part, settings: CorpusSettings) -> Iterator[_PartWriter]:
    with (
        gzip_without_time(part.file("txt.gz"), FAST) as text,
        gzip_without_time(part.file("ids.gz"), FAST) as names,
        part.file("rows").open("wb") as rows,
        part.file("signatures").open("wb") as signatures,
    ):
        yield _PartWriter(part, settings, text, names, rows, signatures)


def _read_file(
    source: SourceFile,
    writer: _PartWriter,
    filters: ArticleFilters,
    part_report: PartReport,
    advance: Callable[[int], None],
) -> list[SourceReport]:
    """Return the report of a file, and those of damaged files in it if it is an archive."""
    report, members = SourceReport(str(source.path), source.bytes), list[SourceReport]()
    start = member = _Mark.of(writer, filters)
    lacking, lacks = tuple[str, ...](), True
    with open_source(source, advance) as file:
        try:
            for item in read_source(file, source.path, filters.settings.field):
                if isinstance(item, Article):
                    report.articles += 1
                    lacking, lacks = item.lacking or (), lacks and item.lacking is not None
                    _take(item, writer, filters)
                elif isinstance(item, Deletion):
                    writer.withdraw(item)
                else:
                    if item.damage:
                        member.restore(writer, filters)
                        report.articles = member.articles
                        members.append(SourceReport(f"{source.path}:{item.name}", 0, damage=item.damage))
                    member = _Mark.of(writer, filters, report.articles)
        except DamagedSourceError as error:
            report.damage = str(error)
            start.restore(writer, filters)
            members.clear()
        report.sha256 = file.sha256()
    if report.articles and lacks and not report.damage:
        part_report.lacking[report.path] = list(lacking)
    if not (report.articles or report.damage or members or len(writer.withdrawn) > start.withdrawn):
        part_report.empty.append(report.path)
    return [report, *members]


def _take(article: Article, writer: _PartWriter, filters: ArticleFilters) -> None:
    kept = filters.apply(article)
    if kept is None:
        writer.drop(article)
    else:
        writer.add(article, kept)


def id_hash(kind: str, name: str) -> int:
    """Return 64 bits that identify an article of a kind of source; 0 where it has no id of all sources' numbering."""
    if not name or kind not in _NUMBERED:
        return 0
    return int.from_bytes(hashlib.blake2b(f"{kind}\0{name}".encode(errors="replace"), digest_size=8).digest()) or 1


def _text_hashes(text: str, seed: int) -> tuple[int, int]:
    """Return 64 bits that identify a text whatever its case, and 64 uniform bits that depend on the seed too."""
    digest = hashlib.blake2b(text.casefold().encode(errors="replace"), digest_size=16).digest()
    salted = hashlib.blake2b(digest, digest_size=8, salt=seed.to_bytes(8)).digest()
    return int.from_bytes(digest[:8]), int.from_bytes(salted)


def minhash(text: str) -> NDArray[np.uint32]:
    """Return the MinHash signature (PERMUTATIONS,) of the sets of `SHINGLE_WORDS` words in succession (Broder 1997)."""
    rensa = require("rensa", EXTRA)
    words = text.casefold().split()
    shingles = [" ".join(words[i : i + SHINGLE_WORDS]) for i in range(max(1, len(words) - SHINGLE_WORDS + 1))]
    signature = rensa.RMinHash(num_perm=PERMUTATIONS, seed=1)
    signature.update(shingles)
    return np.array(signature.digest(), dtype=np.uint32)


def read_table(part: Part) -> ArticleTable:
    """Return the rows of a part that is done."""
    rows = np.fromfile(part.file("rows"), dtype=_ROW)
    noted = {name: np.load(part.file(f"{name}.npy")) for name in _NOTED}
    return ArticleTable(
        **{name: np.ascontiguousarray(rows[name]) for name in rows.dtype.names or ()},
        **{name: pairs[:, 0] for name, pairs in noted.items()},
        **{f"{name}_at": pairs[:, 1].astype(np.int64) for name, pairs in noted.items()},
    )


def read_signatures(part: Part) -> NDArray[np.uint32]:
    """Return the MinHash signatures of a part that is done, (articles, PERMUTATIONS), which stay on disk."""
    path = part.file("signatures")
    if not path.stat().st_size:
        return np.empty((0, PERMUTATIONS), dtype=np.uint32)
    return np.memmap(path, dtype=np.uint32, mode="r").reshape(-1, PERMUTATIONS)


def read_documents_of(part: Part) -> Iterator[tuple[bytes, str]]:
    """Yield every document of a part as it was written, with its id."""
    with gzip.open(part.file("txt.gz"), "rb") as text, gzip.open(part.file("ids.gz"), "rt", encoding="utf-8") as names:
        for size, name in zip(read_table(part).bytes.tolist(), names, strict=True):
            yield text.read(size + len(_AFTER_DOCUMENT)), name.rstrip("\n")


def group_files(files: Sequence[SourceFile], most: int) -> list[int]:
    """Return the number of files in each part: in order, until together they have `most` bytes or are MOST_FILES."""
    sizes = [0]
    filled = 0
    for file in files:
        if sizes[-1] and (filled + file.bytes > most or sizes[-1] == MOST_FILES):
            sizes.append(0)
            filled = 0
        sizes[-1] += 1
        filled += file.bytes
    return sizes


def parts_of(files: Sequence[SourceFile], sizes: Sequence[int], folder: Path) -> list[Part]:
    """Return the parts of a corpus, from the number of files in each."""
    ends = list(accumulate(sizes))
    groups = [tuple(files[end - size : end]) for size, end in zip(sizes, ends, strict=True)]
    return [Part(number, group, folder) for number, group in enumerate(groups)]
