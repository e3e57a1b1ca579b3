"""Read numbered lines of UTF-8 text, plain or gzipped, from files and standard input."""

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
_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = "\ufeff"
_BUFFER_BYTES = 1 << 20
_Parsed = TypeVar("_Parsed")
_SURROGATE = re.compile(r"\\ud[89a-f]", re.IGNORECASE)


class ByteProgress(Protocol):
    """A progress counter, such as `progress.track` gives."""

    def advance(self, amount: int = 1) -> None:
        """Add to the amount done."""


class Line(NamedTuple):
    """A line of a file that may not be valid text."""

    number: int  # from 1
    text: str  # of an invalid line, with replacement characters for the bytes that are not UTF-8
    error: str | None = None  # the message for an invalid line, with its place


def check_characters(text: str, values: Any) -> None:
    """Check JSON for single surrogates (half a character), which it can express and tokenizers refuse.

    Args:
        text: the JSON as written.
        values: the parsed JSON.

    Raises:
        UnicodeEncodeError: a string has a single surrogate.
    """
    if _SURROGATE.search(text):
        json.dumps(values, ensure_ascii=False).encode()


def numbered_lines(path: Path, progress: ByteProgress | None = None) -> Iterator[tuple[int, str]]:
    r"""Stream the lines of a file with their numbers from 1, without line ends (\n or \r\n) and byte order mark.

    Args:
        path: a plain or gzipped file.
        progress: is advanced by the bytes of the file on disk that are read.

    Raises:
        SqueezeError: the file cannot be read, is not UTF-8 text, or is a damaged .gz.
    """
    name = str(path)
    return _numbered(_open_binary(path, progress), name, lambda number, raw: (number, _decoded(raw, name, number)))


def tolerant_lines(path: Path) -> Iterator[Line]:
    """Stream the lines of a file; a line that is not UTF-8 text has an error, and the lines after it are read.

    Raises:
        SqueezeError: the file cannot be read, or is a damaged .gz.
    """
    name = str(path)
    return _numbered(_open_binary(path, None), name, lambda number, raw: _line(raw, name, number))


def stdin_lines() -> Iterator[Line]:
    """Stream the lines of standard input, plain or gzipped, as they arrive; see `tolerant_lines`.

    Raises:
        UsageError: nothing is piped in.
        SqueezeError: the gzip data is damaged.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("- reads data from a pipe, and nothing is piped in; name a file instead")
    return _numbered(_open_stdin(), STANDARD_INPUT, lambda number, raw: _line(raw, STANDARD_INPUT, number))


def read_beginning(path: Path, characters: int = 1 << 20) -> str:
    """Return the beginning of a file as text, without byte order mark; invalid bytes are replaced.

    Args:
        path: a plain or gzipped file.
        characters: how many to read at most.

    Raises:
        SqueezeError: the file cannot be read, or is a damaged .gz.
    """
    with _explained(str(path), lambda: 1), _open_binary(path, None) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", errors="replace").read(characters)
    return text.removeprefix(_BYTE_ORDER_MARK)


def _numbered(
    opened: AbstractContextManager[BinaryIO], name: str, parse: Callable[[int, bytes], _Parsed]
) -> Iterator[_Parsed]:
    number = 0
    with _explained(name, lambda: number + 1), opened as stream:
        for number, raw in enumerate(stream, start=1):
            yield parse(number, raw)


@contextmanager
def _explained(name: str, line: Callable[[], int]) -> Iterator[None]:
    """Turn errors of reading into messages for the user."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        check = f"check it with `gzip -t {name}` and download it again" if name != STANDARD_INPUT else "send it again"
        raise SqueezeError(f"{name}:{line()}: the gzip data is damaged ({error}); {check}") from error
    except OSError as error:
        raise SqueezeError(
            f"{name} cannot be read ({error.strerror or error}); check the path and its permissions"
        ) from error


class _CountingFile(io.FileIO):
    """A file that advances a progress counter by the bytes that are read."""

    def __init__(self, path: Path, progress: ByteProgress) -> None:
        super().__init__(path)
        self._progress = progress

    def readinto(self, buffer: Any) -> int:
        count = super().readinto(buffer) or 0
        self._progress.advance(count)
        return count


@contextmanager
def _open_binary(path: Path, progress: ByteProgress | None) -> Iterator[BinaryIO]:
    plain: Any = (
        path.open("rb") if progress is None else io.BufferedReader(_CountingFile(path, progress), _BUFFER_BYTES)
    )
    with plain:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=plain) as unpacked:
                yield unpacked  # type: ignore[misc] # GzipFile reads as a BinaryIO does
        else:
            yield plain


@contextmanager
def _open_stdin() -> Iterator[BinaryIO]:
    stream: Any = sys.stdin.buffer
    if stream.peek(len(_GZIP_MAGIC))[: len(_GZIP_MAGIC)] == _GZIP_MAGIC:
        with gzip.GzipFile(fileobj=stream) as unpacked:
            yield unpacked  # type: ignore[misc] # GzipFile reads as a BinaryIO does
    else:
        yield stream


def _line(raw: bytes, name: str, number: int) -> Line:
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
            f"{name}:{number}: contains NUL bytes, so it is UTF-16 or not text; if it is text, convert it first: "
            f"{_conversion(name, 'UTF-16')}"
        )
    if number == 1:
        line = line.removeprefix(_BYTE_ORDER_MARK)
    return line.rstrip("\r\n")


def _conversion(name: str, encoding: str) -> str:
    """Return the shell command that makes a UTF-8 copy; the encoding is a guess that the user has to check."""
    iconv = f"iconv -f {encoding} -t UTF-8"
    if name == STANDARD_INPUT:
        return f"{iconv} in the pipe"
    path = Path(name)
    if path.suffix == ".gz":
        return f"gzip -dc {path} | {iconv} | gzip > utf8-{path.name}"
    return f"{iconv} {path} > utf8-{path.name}"
