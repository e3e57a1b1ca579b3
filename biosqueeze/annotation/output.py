"""Write annotated records: as JSON lines or PubTator, to a file that is complete or absent."""

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

from biosqueeze.errors import SqueezeError
from biosqueeze.files import open_atomic
from biosqueeze.os_errors import explained_writes

if TYPE_CHECKING:
    from biosqueeze.annotation.annotator import AnnotatedRecord

OutputFormat = Literal["jsonl", "pubtator"]


@dataclass(frozen=True)
class RecordFormatter:
    """Format annotated records for the output."""

    format: OutputFormat
    keep_fields: bool
    """Add the whole input record as "record" (JSON lines only)."""

    def lines(self, annotated: "AnnotatedRecord") -> str:
        """Return the lines of one record, with line ends."""
        if self.format == "pubtator":
            return annotated.pubtator()
        annotation = {"error": annotated.error} if annotated.annotation is None else annotated.annotation
        record = {"record": annotated.record.values} if self.keep_fields else {}
        return json.dumps({"id": annotated.record.id, **annotation, **record}, ensure_ascii=False) + "\n"


def write_output(out: Path, lines: Iterator[str], written: Callable[[], int]) -> None:
    """Write lines to FILE.partial and rename it to FILE when all are written; a .gz is compressed.

    Args:
        out: the file.
        lines: text with line ends.
        written: returns the number of records so far, for the message of an error.

    Raises:
        SqueezeError: the file cannot be written, or `lines` raised one; FILE.partial then holds the lines before it.
    """
    elsewhere = "give another file with --out"
    with explained_writes(str(out), remedy=elsewhere, when_full=f"free some space, or {elsewhere}"):
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open_atomic(out, keep_partial=True) as file, _compressed(file, out) as stream:
                for text in lines:
                    stream.write(text.encode())
        except SqueezeError as error:
            saved = f"{out}.partial holds the predictions of the first {written():,} records"
            raise type(error)(f"{error}; {saved}") from error


@contextmanager
def _compressed(file: BinaryIO, out: Path) -> Iterator[BinaryIO]:
    """Yield a stream that compresses into the file where the output's name ends in .gz, else the file."""
    if out.suffix == ".gz":
        # Without a name and a time in its header, the same lines give the same bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as stream:
            yield stream  # type: ignore[misc] # GzipFile writes as a BinaryIO does
    else:
        yield file
