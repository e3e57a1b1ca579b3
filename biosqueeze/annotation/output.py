"""Write annotated records: as JSON lines or PubTator, to a file that is complete or absent."""

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from biosqueeze.annotation.saved import SavedPredictions
from biosqueeze.errors import SqueezeError
from biosqueeze.files import check_absent, flush, rename, write_json
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


def write_to_stream(out: Path, lines: Iterator[str]) -> None:
    """Write lines to a device, a named pipe or a descriptor as they are computed; a .gz is compressed.

    Raises:
        SqueezeError: it cannot be written to, or `lines` raised one.
    """
    with _explained(out), out.open("wb") as file, _compressed(file, out) as stream:
        _write_all(lines, stream, file)


@contextmanager
def reserved(out: Path) -> Iterator[None]:
    """Hold a lock on FILE, so that two processes do not compute the same output.

    Raises:
        SqueezeError: another process holds it, or its directory cannot be written to.
    """
    lock = out.with_name(f".{out.name}.lock")

    def refuse() -> None:
        raise SqueezeError(f"another biosqueeze is writing {out} right now; wait for it, or give another --out")

    with ExitStack() as stack:
        with _explained(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(exclusive_lock(lock, refuse))
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def write_file(
    target: SavedPredictions, request: Mapping[str, Any], before: Iterable[str], lines: Iterator[str], *, force: bool
) -> None:
    """Write the lines of an interrupted run and all others to FILE.partial; rename it to FILE when all are written.

    FILE.partial has the former lines until all of them are copied, and stays where `lines` raises an error.

    Args:
        target: names of the files, of which this process holds the lock.
        request: what the lines are made by, for FILE.partial.json.
        before: the lines that an interrupted run has written; they may come from FILE.partial.
        lines: the others, with line ends.
        force: replace an existing FILE.

    Raises:
        SqueezeError: FILE exists, a file cannot be written, or `before` or `lines` raised one.
    """
    copy = target.path.with_name(f"{target.path.name}.copy")
    try:
        with _explained(target.out):
            with copy.open("wb") as file, _compressed(file, target.out) as stream:
                for text in before:
                    stream.write(text.encode())
                write_json(target.request_file, request)
                rename(copy, target.path)
                _write_all(lines, stream, file)
            flush(target.path)
            check_free(target.out, force=force)  # where there are no locks, another process may have been faster
            rename(target.path, target.out)
            target.request_file.unlink()
    finally:
        copy.unlink(missing_ok=True)


def check_free(out: Path, *, force: bool) -> None:
    """Check that a file may be written.

    Raises:
        SqueezeError: it exists and is not to be replaced, or is a directory.
    """
    if out.is_dir():
        raise SqueezeError(f"{out} is a directory; name a file with --out, such as {out / 'predictions.jsonl'}")
    check_absent(out, force=force)


def _write_all(lines: Iterator[str], stream: BinaryIO, file: BinaryIO) -> None:
    """Write lines to a stream as they are computed; `file` is what it writes to."""
    for text in lines:
        stream.write(text.encode())
        file.flush()


@contextmanager
def _explained(out: Path) -> Iterator[None]:
    elsewhere = "give another file with --out"
    with explained_writes(str(out), remedy=elsewhere, when_full=f"free some space, or {elsewhere}"):
        yield


@contextmanager
def _compressed(file: BinaryIO, out: Path) -> Iterator[BinaryIO]:
    """Yield a stream that compresses into the file where the output's name ends in .gz, else the file."""
    if out.suffix == ".gz":
        # Without a name and a time in its header, the same lines give the same bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as stream:
            yield stream  # type: ignore[misc] # GzipFile writes as a BinaryIO does
    else:
        yield file
