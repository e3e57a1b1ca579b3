"""Write annotated records: as JSON lines or PubTator, to a file that is complete or absent."""

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from biosqueeze.annotation.saved import Mark, SavedPredictions
from biosqueeze.errors import SqueezeError
from biosqueeze.files import check_absent, flush, rename, write_text
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


@contextmanager
def growing_file(
    target: SavedPredictions, request: Mapping[str, Any], before: Iterable[tuple[str, Mark]], *, force: bool
) -> Iterator[Callable[[str, Mark], None]]:
    """Write predictions of an interrupted run, and those of the body, to FILE.partial; rename it to FILE at the end.

    FILE.partial has the former predictions until all of them are copied. It stays where the body raises an error, and
    where the process is killed, with what was appended.

    Args:
        target: names of the files, of which this process holds the lock.
        request: what the predictions are made by, for the journal.
        before: predictions of an interrupted run and their entries in the journal; they may come from FILE.partial.
        force: replace an existing FILE.

    Yields:
        the function that appends predictions and their entry.

    Raises:
        SqueezeError: FILE exists, or a file cannot be written.
    """
    copy = target.path.with_name(f"{target.path.name}.copy")
    with _explained(target.out), ExitStack() as stack:
        stack.callback(copy.unlink, missing_ok=True)
        file = stack.enter_context(copy.open("wb"))
        with _compressed(file, target.out) as stream:
            written = [_written(text, mark, stream) for text, mark in before]
            if not written:  # what lies there is of another request
                target.path.unlink(missing_ok=True)
            write_text(target.journal, "".join(map(_entry, (request, *written))))
            rename(copy, target.path)
            with target.journal.open("a", encoding="utf-8") as journal:

                def append(text: str, mark: Mark) -> None:
                    written.append(_written(text, mark, stream))
                    journal.write(_entry(mark))
                    journal.flush()

                try:
                    yield append
                except BaseException:
                    if not written:  # nothing was predicted
                        target.path.unlink()
                        target.journal.unlink()
                    raise
        file.close()
        flush(target.path)
        check_free(target.out, force=force)  # where there are no locks, another process may have been faster
        rename(target.path, target.out)
        target.journal.unlink()


def _written(text: str, mark: Mark, stream: BinaryIO) -> Mark:
    """Write the predictions of a chunk so that they outlive the process, and return their entry in the journal."""
    stream.write(text.encode())
    stream.flush()
    return mark


def _entry(values: Mapping[str, Any]) -> str:
    return f"{json.dumps(values)}\n"


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
