"""Write the documents of a part that are kept as shards: gzipped text, a sentence a line, a blank line after each."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from biosqueeze.corpora.gzip_files import gzip_without_time
from biosqueeze.corpora.parts import Part, read_documents_of
from biosqueeze.corpora.selection import Decision

TRAIN, HELD_OUT = "train", "held-out"
SHARD_BYTES = 1 << 27  # of text; some 40 MB of gzip


@dataclass(frozen=True)
class ShardFile:
    """A file of the corpus."""

    name: str
    split: str
    documents: int
    sentences: int
    text_bytes: int
    sha256: str  # of the text


@dataclass
class _OpenShard:
    """A shard that is being written."""

    name: str
    split: str
    file: IO[bytes]
    documents: int = 0
    sentences: int = 0
    text_bytes: int = 0
    digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def add(self, document: bytes) -> None:
        self.file.write(document)
        self.digest.update(document)
        self.documents += 1
        self.sentences += document.count(b"\n") - 1
        self.text_bytes += len(document)

    def entry(self) -> ShardFile:
        return ShardFile(
            self.name, self.split, self.documents, self.sentences, self.text_bytes, self.digest.hexdigest()
        )


def write_shards(part: Part, decisions: NDArray[np.uint8], folder: Path) -> list[ShardFile]:
    """Write the documents of a part that are kept or held out; one document is in memory at a time.

    Beside the shards, the list `NUMBER.list` names the id and the shard of every document.

    Args:
        part: a part that is done.
        decisions: of its documents, (documents,).
        folder: of the corpus.
    """
    with part.file("list").open("w", encoding="utf-8") as listing:
        entries = []
        for split, decision in ((TRAIN, Decision.KEPT), (HELD_OUT, Decision.HELD_OUT)):
            documents = (
                (d, name) for (d, name), own in zip(read_documents_of(part), decisions, strict=True) if own == decision
            )
            if (decisions == decision).any():
                entries += _write_split(documents, part.number, split, folder, listing)
    return entries


def _write_split(
    documents: Iterator[tuple[bytes, str]], number: int, split: str, folder: Path, listing: IO[str]
) -> list[ShardFile]:
    entries: list[ShardFile] = []
    document = next(documents, None)
    while document is not None:
        name = f"{number:06d}-{len(entries):03d}.txt.gz"
        with _open_shard(folder, f"{HELD_OUT}/{name}" if split == HELD_OUT else name, split) as shard:
            while document is not None and shard.text_bytes < SHARD_BYTES:
                shard.add(document[0])
                listing.write(f"{document[1]}\t{shard.name}\n")
                document = next(documents, None)
        entries.append(shard.entry())
    return entries


@contextmanager
def _open_shard(folder: Path, name: str, split: str) -> Iterator[_OpenShard]:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    with gzip_without_time(path) as file:
        yield _OpenShard(name, split, file)
