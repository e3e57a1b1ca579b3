"""Write annotated records: as JSON lines or PubTator, to a file that is complete or absent."""

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

from biosqueeze.errors import SqueezeError
from biosqueeze.files import check_absent, open_atomic
from biosqueeze.system.locks import exclusive_lock
from biosqueeze.system.os_errors import explained_writes

if TYPE_CHECKING:
    from biosqueeze.annotation.annotator import AnnotatedRecord

OutputFormat = Literal["jsonl", "pubtator"]
_DESCRIPTORS = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))
_STANDARD_OUTPUT = (Path("/dev/stdout"), Path("/dev/fd/1"), Path("/proc/self/fd/1"))


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


def is_standard_output(out: Path) -> bool:
    """Return whether a path is a name of standard output, which the command line redirects while a stage runs."""
    return out.absolute() in _STANDARD_OUTPUT


def is_stream(out: Path) -> bool:
    """Return whether a path is a device, a pipe or a descriptor, which is written to and never replaced."""
    return out.absolute().parent in _DESCRIPTORS or (out.exists() and not (out.is_file() or out.is_dir()))


def write_output(out: Path, lines: Iterator[str], written: Callable[[], int], *, force: bool) -> None:
    """Write lines to a temporary file and rename it to FILE when all are written; a .gz is compressed.

    A device, a named pipe or a descriptor is written to as the lines are computed.

    Args:
        out: the file.
        lines: text with line ends.
        written: returns the number of records so far, for the message of an error.
        force: replace an existing file.

    Raises:
        SqueezeError: the file exists or cannot be written, another process writes it, or `lines` raised one;
            FILE.partial then holds the lines before it.
    """
    elsewhere = "give another file with --out"
    with explained_writes(str(out), remedy=elsewhere, when_full=f"free some space, or {elsewhere}"):
        if is_stream(out):
            with out.open("wb") as file:
                _write(lines, file, out)
            return
        out.parent.mkdir(parents=True, exist_ok=True)
        with _reserved(out):
            check_free(out, force=force)
            try:
                with open_atomic(out, keep_partial=True) as file:
                    _write(lines, file, out)
                    check_free(out, force=force)  # where there are no locks, another process may have been faster
            except (SqueezeError, KeyboardInterrupt) as error:
                saved = f"{out}.partial holds the predictions of the first {written():,} records"
                raise type(error)(f"{error}; {saved}" if str(error) else saved) from error


def check_free(out: Path, *, force: bool) -> None:
    """Check that a file may be written.

    Raises:
        SqueezeError: it exists and is not to be replaced, or is a directory.
    """
    if out.is_dir():
        raise SqueezeError(f"{out} is a directory; name a file with --out, such as {out / 'predictions.jsonl'}")
    check_absent(out, force=force)


@contextmanager
def _reserved(out: Path) -> Iterator[None]:
    """Hold a lock on FILE, so that two processes do not compute the same output.

    Raises:
        SqueezeError: another process holds it.
    """
    lock = out.with_name(f".{out.name}.lock")

    def refuse() -> None:
        raise SqueezeError(f"another biosqueeze is writing {out} right now; wait for it, or give another --out")

    with exclusive_lock(lock, refuse):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _write(lines: Iterator[str], file: BinaryIO, out: Path) -> None:
    with _compressed(file, out) as stream:
        for text in lines:
            stream.write(text.encode())
            file.flush()


@contextmanager
def _compressed(file: BinaryIO, out: Path) -> Iterator[BinaryIO]:
    """Yield a stream that compresses into the file where the output's name ends in .gz, else the file."""
    if out.suffix == ".gz":
        # Without a name and a time in its header, the same lines give the same bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as stream:
            yield stream  # type: ignore[misc] # GzipFile writes as a BinaryIO does
    else:
        yield file
