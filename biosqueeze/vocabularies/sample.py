"""Sample lines of a corpus of any size: all of it is read, and at most so many bytes are kept, in a temporary file."""

import hashlib
import random
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from biosqueeze.data.text.corpus import corpus_files, read_files
from biosqueeze.data.text.prepared import megabyte_progress
from biosqueeze.errors import SqueezeError
from biosqueeze.files import megabytes

_BATCH_BYTES = 1 << 20


@dataclass(frozen=True)
class SourceFacts:
    """What was read of a corpus; `sha256` is that of its lines, each with a line end."""

    name: str
    lines: int
    bytes: int
    sha256: str


class TextSample:
    """Lines of a corpus, kept with equal probability.

    A line is kept if its random number is below `share`. Whenever the kept lines pass the limit, the share is halved,
    and the lines above it are dropped. So each part of the corpus is represented, and the size need not be known
    before. Equal seeds and texts give equal samples.
    """

    def __init__(self, most_bytes: int, seed: int, folder: Path) -> None:
        self.share, self.bytes = 1.0, 0
        self._most_bytes, self._folder = most_bytes, folder
        self._random = random.Random(seed)
        self._draws = array("d")
        self._file = self._open()

    @property
    def lines(self) -> int:
        """Number of lines that are kept."""
        return len(self._draws)

    def add(self, line: bytes) -> None:
        """Keep a line, with its line end, or drop it."""
        draw = self._random.random()
        if draw >= self.share:
            return
        self._keep(line, draw)
        while self.bytes > self._most_bytes and self.lines > 1:
            self._halve()

    def batches(self) -> Iterator[list[str]]:
        """Yield the lines in order, without line ends, about a megabyte at a time."""
        self._file.flush()
        self._file.seek(0)
        while lines := self._file.readlines(_BATCH_BYTES):
            yield [line[:-1].decode() for line in lines]

    def characters(self) -> Counter[str]:
        """Count the characters of the sample."""
        counts: Counter[str] = Counter()
        with megabyte_progress("counting characters", self.bytes / 1e6) as progress:
            for batch in self.batches():
                text = "".join(batch)
                counts.update(text)
                progress.advance(len(text))
        return counts

    def close(self) -> None:
        """Delete the temporary file."""
        self._file.close()

    def _open(self) -> IO[bytes]:
        return tempfile.TemporaryFile(dir=self._folder)

    def _keep(self, line: bytes, draw: float) -> None:
        self._file.write(line)
        self._draws.append(draw)
        self.bytes += len(line)

    def _halve(self) -> None:
        former, draws = self._file, self._draws
        self.share /= 2
        self._file, self._draws, self.bytes = self._open(), array("d"), 0
        former.flush()
        former.seek(0)
        with former:
            for line, draw in zip(former, draws, strict=True):
                if draw < self.share:
                    self._keep(line, draw)


@contextmanager
def sampled(
    sources: Sequence[str], field: str, most_bytes: int, seed: int, folder: Path
) -> Iterator[tuple[TextSample, tuple[SourceFacts, ...]]]:
    """Read corpora and yield a sample of their lines, which is deleted at the end.

    Args:
        sources: as every --corpus takes them.
        field: the field of a JSONL record that holds the text.
        most_bytes: of UTF-8 text to keep.
        seed: of the sample.
        folder: where the temporary file is.

    Raises:
        SqueezeError: a corpus cannot be read, or holds no text, or few long lines left none of them in the sample.
    """
    sample = TextSample(most_bytes, seed, folder)
    try:
        read = tuple(_read(source, field, sample) for source in sources)
        if not sample.lines:
            lines, size = sum(each.lines for each in read), sum(each.bytes for each in read)
            raise SqueezeError(
                f"none of the {lines:,} lines was drawn for a sample of {most_bytes / 1e6:,.6g} MB, because they are "
                f"long ({size / lines / 1e6:,.6g} MB on average); give a larger --sample-mb"
            )
        yield sample, read
    finally:
        sample.close()


def _read(source: str, field: str, sample: TextSample) -> SourceFacts:
    digest = hashlib.sha256()
    files = corpus_files(source)
    lines = size = 0
    with megabyte_progress(f"reading {source}", megabytes(files)) as progress:
        for text in read_files(source, files, field, progress):
            line = f"{text}\n".encode(errors="replace")
            digest.update(line)
            sample.add(line)
            lines += 1
            size += len(line)
    return SourceFacts(source, lines, size, digest.hexdigest())
