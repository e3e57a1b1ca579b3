"""Numbered lines of UTF-8 text, plain or gzipped, from a file or standard input: errors can say where they are."""

import gzip
import io
import json
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar

from biosqueeze.errors import SqueezeError, UsageError

STANDARD_INPUT = "standard input"
_GZIP = b"\x1f\x8b"
_BOM = "\ufeff"
_READ_AT_ONCE = 1 << 20
_Read = TypeVar("_Read")
_SURROGATE = re.compile(r"\\ud[89a-f]", re.IGNORECASE)


class ByteProgress(Protocol):
    """Something to tell how much is done, such as what `progress.track` gives."""

    def advance(self, amount: int = 1) -> None:
        """Add to what is done."""


class Line(NamedTuple):
    """A line of text, or of what should be text."""

    number: int  # from 1
    text: str  # where there is a error, with a replacement character for what is no UTF-8
    error: str | None = None  # what is wrong with it, and where it stands


def check_characters(text: str, values: Any) -> None:
    """JSON can hold half a character, which no tokenizer takes.

    Args:
        text: as it was written.
        values: what it was read as.

    Raises:
        UnicodeEncodeError: it does.
    """
    if _SURROGATE.search(text):
        json.dumps(values, ensure_ascii=False).encode()


def numbered_lines(path: Path, progress: ByteProgress | None = None) -> Iterator[tuple[int, str]]:
    r"""Each line and its number, from 1, without its line end (\n or \r\n) and without a byte order mark.

    Args:
        path: a plain or gzipped file.
        progress: told how many bytes of the file, as it lies on the disk, are read.

    Raises:
        SqueezeError: the file cannot be read, is no UTF-8 text, or is a damaged .gz.
    """
    name = str(path)
    return _numbered(_opened(path, progress), name, lambda number, raw: (number, _decoded(raw, name, number)))


def tolerant_lines(path: Path) -> Iterator[Line]:
    """The same, but a line that is no UTF-8 text has a error, and the lines behind it are read.

    Raises:
        SqueezeError: the file cannot be read, or is a damaged .gz.
    """
    name = str(path)
    return _numbered(_opened(path, None), name, lambda number, raw: _tolerated(raw, name, number))


def stdin_lines() -> Iterator[Line]:
    """The lines of standard input, plain or gzipped, as they arrive; see `tolerant_lines`.

    Raises:
        UsageError: nothing is piped in.
        SqueezeError: it is damaged gzip data.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("- reads data from a pipe, and nothing is piped in; name a file instead")
    return _numbered(_piped(), STANDARD_INPUT, lambda number, raw: _tolerated(raw, STANDARD_INPUT, number))


def _numbered(
    opened: AbstractContextManager[BinaryIO], name: str, read: Callable[[int, bytes], _Read]
) -> Iterator[_Read]:
    number = 0
    try:
        with opened as stream:
            for number, raw in enumerate(stream, start=1):
                yield read(number, raw)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        again = f"check it with `gzip -t {name}` and fetch it again" if name != STANDARD_INPUT else "fetch it again"
        raise SqueezeError(f"{name}:{number + 1}: the gzip data is damaged ({error}); {again}") from error
    except OSError as error:
        raise SqueezeError(
            f"{name} cannot be read ({error.strerror or error}); check the path and its rights"
        ) from error


class _Counted(io.FileIO):
    """A file that tells how many bytes of it are read."""

    def __init__(self, path: Path, progress: ByteProgress) -> None:
        super().__init__(path)
        self._progress = progress

    def readinto(self, buffer: Any) -> int:
        count = super().readinto(buffer) or 0
        self._progress.advance(count)
        return count


@contextmanager
def _opened(path: Path, progress: ByteProgress | None) -> Iterator[BinaryIO]:
    with path.open("rb") if progress is None else io.BufferedReader(_Counted(path, progress), _READ_AT_ONCE) as plain:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=plain) as unpacked:
                yield unpacked  # type: ignore[misc] # GzipFile reads as a BinaryIO does
        else:
            yield plain


@contextmanager
def _piped() -> Iterator[BinaryIO]:
    stream: Any = sys.stdin.buffer
    if stream.peek(len(_GZIP))[: len(_GZIP)] == _GZIP:
        with gzip.GzipFile(fileobj=stream) as unpacked:
            yield unpacked  # type: ignore[misc] # GzipFile reads as a BinaryIO does
    else:
        yield stream


def _tolerated(raw: bytes, name: str, number: int) -> Line:
    try:
        return Line(number, _decoded(raw, name, number))
    except SqueezeError as error:
        return Line(number, raw.decode("utf-8", errors="replace").rstrip("\r\n"), str(error))


def _decoded(raw: bytes, name: str, number: int) -> str:
    try:
        line = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        likely = "UTF-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "LATIN1"
        raise SqueezeError(
            f"{name}:{number}: not UTF-8 text (byte 0x{raw[error.start]:02x} at column {error.start + 1}); "
            f"convert it first: {_conversion(name, likely)}"
        ) from error
    if "\0" in line:
        raise SqueezeError(
            f"{name}:{number}: holds NUL bytes, so it is UTF-16 or no text; if it is text, convert it first: "
            f"{_conversion(name, 'UTF-16')}"
        )
    if number == 1:
        line = line.removeprefix(_BOM)
    return line.rstrip("\r\n")


def _conversion(name: str, encoding: str) -> str:
    """The shell line that makes a UTF-8 copy; only the user can know that the encoding is the one guessed."""
    iconv = f"iconv -f {encoding} -t UTF-8"
    if name == STANDARD_INPUT:
        return f"{iconv} in the pipe"
    path = Path(name)
    if path.suffix == ".gz":
        return f"gzip -dc {path} | {iconv} | gzip > utf8-{path.name}"
    return f"{iconv} {path} > utf8-{path.name}"
