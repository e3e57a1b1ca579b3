"""Read numbered lines of UTF-8 text, plain or gzipped, from files and standard input."""

import gzip
import io
import json
import re
import shlex
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar

from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.files import LFS_POINTER, lfs_pointer_error
from biosqueeze.files.parsing import max_document_bytes, max_line_bytes, parse_json, too_large

STANDARD_INPUT = "standard input"
_NOT_DATA = re.compile(r"(?:readme|licen[sc]es?|changelog|notice)(?![a-z])|\.|.*(?<![a-z])file_?list")
"""The names, in lower case, of files that lie beside data and are none, such as PMC's oa_file_list.txt."""
_GZIP_MAGIC = b"\x1f\x8b"
_OTHER_PACKED = {
    re.compile(rb"BZh\d1AY&SY"): "bzip2 -dc",
    re.compile(rb"\xfd7zXZ\0"): "xz -dc",
    re.compile(rb"PK\x03\x04"): "unzip -p",
    re.compile(rb"\x28\xb5\x2f\xfd"): "zstd -dc",
}
"""The beginnings of files of other packers, and how they are unpacked."""
_TAR_PLACE, _TAR_MAGIC = slice(257, 262), b"ustar"  # in the header of the first file
_BYTE_ORDER_MARK = "\ufeff"
_BUFFER_BYTES = 1 << 17
_SHOWN_BYTES = 1000  # of a line that is too long
_SKIPPED_LIMITS = 16  # a line of this many times the limit ends the reading
# gzip makes abstracts 3 to 5 times smaller, one sentence that is repeated some 400 times, and one byte 1,030 times.
_HIGHEST_RATIO = 500
_RATIO_FROM_LINES = 8  # of the largest size
_Parsed = TypeVar("_Parsed")
_SURROGATE = re.compile(r"\\ud[89a-f]", re.IGNORECASE)


def data_suffix(path: Path) -> str:
    """Return the suffix that determines the format: `.tsv` for x.tsv.gz."""
    return (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix.lower()


def is_beside_data(path: Path) -> bool:
    """Return whether a file is none of data by its name: hidden, or a README, a licence, or a list of files."""
    return _NOT_DATA.match(path.name.lower()) is not None


class ByteProgress(Protocol):
    """A progress counter, such as `progress.track` gives."""

    def advance(self, amount: int = 1) -> None:
        """Add to the amount done."""


class Line(NamedTuple):
    """A line of a file that may not be valid text."""

    number: int  # from 1
    text: str  # of an invalid line, with replacement characters for the bytes that are not UTF-8
    error: str | None = None  # the message for an invalid line, with its place
    end: str = "\n"  # the line end as read; "" of a last line without one


class _Source(NamedTuple):
    name: str
    limit: int  # bytes in a line


def check_characters(text: str, values: Any) -> None:
    """Check JSON for single surrogates (half a character), which it can express and tokenizers refuse.

    Args:
        text: the JSON as written.
        values: the parsed JSON.

    Raises:
        UnicodeEncodeError: a string has a single surrogate.
    """
    if "\\u" in text and _SURROGATE.search(text):
        json.dumps(values, ensure_ascii=False).encode()


def numbered_lines(path: Path, progress: ByteProgress | None = None) -> Iterator[tuple[int, str]]:
    r"""Stream the lines of a file with their numbers from 1, without line ends (\n or \r\n) and byte order mark.

    Args:
        path: a plain or gzipped file.
        progress: is advanced by the bytes of the file on disk that are read.

    Raises:
        SqueezeError: the file cannot be read, is not UTF-8 text, is a damaged .gz, or a line of it is too long.
    """
    source = _Source(str(path), max_line_bytes())
    return _numbered(open_binary(path, progress), source, partial(_numbered_text, source))


def tolerant_lines(path: Path, progress: ByteProgress | None = None) -> Iterator[Line]:
    """Stream the lines of a file; a line that is too long or not UTF-8 has an error, and the lines after it are read.

    Args:
        path: a plain or gzipped file.
        progress: is advanced by the bytes of the file on disk that are read.

    Raises:
        SqueezeError: the file cannot be read, is a damaged .gz, or has no line end.
    """
    source = _Source(str(path), max_line_bytes())
    return _numbered(open_binary(path, progress), source, lambda number, raw: _line(raw, source, number))


def stdin_lines() -> Iterator[Line]:
    """Stream the lines of standard input, plain or gzipped, as they arrive; see `tolerant_lines`.

    Raises:
        UsageError: nothing is piped in.
        SqueezeError: the gzip data is damaged.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("- reads data from a pipe, and nothing is piped in; name a file instead")
    source = _Source(STANDARD_INPUT, max_line_bytes())
    return _numbered(_open_stdin(), source, lambda number, raw: _line(raw, source, number))


def read_beginning(path: Path, characters: int = 1 << 20) -> str:
    """Return the beginning of a file as text, without byte order mark; invalid bytes are replaced.

    Args:
        path: a plain or gzipped file.
        characters: how many to read at most.

    Raises:
        SqueezeError: the file cannot be read, or is a damaged .gz.
    """
    with _explained(str(path), lambda: 1), open_binary(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="\n").read(characters)
    return text.removeprefix(_BYTE_ORDER_MARK)


def read_bytes(path: Path) -> bytes:
    """Return the content of a plain or gzipped file that is parsed as a whole.

    Raises:
        SqueezeError: the file cannot be read, is a damaged .gz, or is too large.
    """
    limit = max_document_bytes()
    with _explained(str(path), lambda: 1), open_binary(path) as stream:
        content = stream.read(limit + 1)
    if len(content) > limit:
        raise too_large(str(path), limit)
    return content


def read_document(path: Path) -> list[str]:
    """Return the lines of a file that is parsed as a whole, as `numbered_lines` does.

    Raises:
        SqueezeError: as for `numbered_lines`, or the file is too large.
    """
    size, lines = 0, []
    source = _Source(str(path), max_document_bytes())
    for _, line in _numbered(open_binary(path), source, partial(_numbered_text, source)):
        size += len(line) + 1
        if size > source.limit:
            raise too_large(str(path), source.limit)
        lines.append(line)
    return lines


def read_json_document(path: Path) -> Any:
    """Parse a file that holds one JSON value.

    Raises:
        SqueezeError: it is not JSON; otherwise as for `read_document`.
    """
    try:
        return parse_json("\n".join(read_document(path)))
    except json.JSONDecodeError as error:
        raise invalid_json(path, error) from error


def invalid_json(path: Path, error: json.JSONDecodeError, first: int = 1) -> SqueezeError:
    """Return the error for a file with invalid JSON; `first` is the number of the first line that was parsed."""
    return SqueezeError(
        f"{path}:{first + error.lineno - 1}: invalid JSON ({error.msg} at column {error.colno}); correct this line"
    )


def invalid_xml(path: Path, line: int | None, problem: str) -> SqueezeError:
    """Return the error for a file with invalid XML."""
    return SqueezeError(f"{path}:{line}: invalid XML ({problem}); correct this line, or download the file again")


def _numbered(
    opened: AbstractContextManager[BinaryIO], source: _Source, parse: Callable[[int, bytes], _Parsed]
) -> Iterator[_Parsed]:
    number = 0
    with _explained(source.name, lambda: number + 1), opened as stream:
        for number, raw in enumerate(iter(partial(stream.readline, source.limit + 1), b""), start=1):
            yield parse(number, raw)
            if len(raw) > source.limit:
                _skip_line(stream, source, number, raw)


def _skip_line(stream: BinaryIO, source: _Source, number: int, part: bytes) -> None:
    """Read on to the end of a line that is too long.

    Raises:
        SqueezeError: it has no end.
    """
    left = _SKIPPED_LIMITS * source.limit
    while part and not part.endswith(b"\n"):
        part = stream.readline(_BUFFER_BYTES)
        left -= len(part)
        if left < 0:
            raise SqueezeError(f"{source.name}:{number}: the line has no end, so this may be no text; check the file")


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
def open_binary(path: Path, progress: ByteProgress | None = None) -> Iterator[BinaryIO]:
    """Open a plain or gzipped file for reading: a .gz, or any other with gzip data, as a pipe (`<(cat x.gz)`).

    Raises:
        SqueezeError: another program packed it; while reading: it is a .gz that unpacks to many times its size.
    """
    plain: Any = (
        path.open("rb", _BUFFER_BYTES)
        if progress is None
        else io.BufferedReader(_CountingFile(path, progress), _BUFFER_BYTES)
    )
    with plain:
        is_packed = path.suffix.lower() == ".gz" or _begins_gzip(plain)
        check_packer(plain, str(path))
        yield unpacked(plain, str(path)) if is_packed else plain


@contextmanager
def _open_stdin() -> Iterator[BinaryIO]:
    stream: Any = sys.stdin.buffer
    check_packer(stream, STANDARD_INPUT)
    yield unpacked(stream, STANDARD_INPUT) if _begins_gzip(stream) else stream


def check_packer(stream: Any, name: str) -> None:
    """Check that data are not those of another packer than gzip, nor what Git LFS has in their place.

    Args:
        stream: at its beginning.
        name: of the file, for the message.

    Raises:
        SqueezeError: they are.
    """
    beginning: bytes = stream.peek(len(LFS_POINTER))
    if beginning.startswith(LFS_POINTER):
        raise lfs_pointer_error(name, "the data")
    command = next((command for magic, command in _OTHER_PACKED.items() if magic.match(beginning)), None)
    if command:
        is_piped = name == STANDARD_INPUT
        unpacking = f"{command} FILE in the pipe" if is_piped else f"{command} {shlex.quote(name)} > FILE"
        raise SqueezeError(f"{name} is packed, and only .gz is read; unpack it first: {unpacking}")


def _begins_gzip(stream: Any) -> bool:
    beginning: bytes = stream.peek(len(_GZIP_MAGIC))
    return beginning.startswith(_GZIP_MAGIC)


def unpacked(packed: BinaryIO, name: str) -> BinaryIO:
    """Return the content of gzipped data, which may be at most `_HIGHEST_RATIO` times as large, or 8 largest lines.

    Args:
        packed: the gzipped data.
        name: of the file, for messages.
    """
    return io.BufferedReader(_Unpacked(packed, name), _BUFFER_BYTES)


class _Unpacked(io.RawIOBase):
    """Gzipped data, unpacked while it is read; data that unpack to many times their size are an error."""

    def __init__(self, packed: BinaryIO, name: str) -> None:
        self._packed = _CountedReads(packed)
        self._gzip = gzip.GzipFile(fileobj=self._packed)  # type: ignore[call-overload] # it only calls read
        self._name = name
        self._bytes = 0
        self._most_bytes = int(_RATIO_FROM_LINES * max_line_bytes())

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._gzip.read1(len(buffer))
        buffer[: len(data)] = data
        self._bytes += len(data)
        if self._bytes > max(self._most_bytes, _HIGHEST_RATIO * self._packed.bytes):
            raise SqueezeError(
                f"{self._name} unpacks to more than {_HIGHEST_RATIO} times its size, as damaged or hostile files do; "
                f"if it is right, allow more with --max-record-mb {16 * self._most_bytes >> 20}, or unpack it (gzip -d)"
            )
        return len(data)


class _CountedReads:
    """A stream that counts the bytes that are read from it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.bytes = 0

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.bytes += len(data)
        return data


def _numbered_text(source: _Source, number: int, raw: bytes) -> tuple[int, str]:
    return number, _decoded(raw, source, number)


def _line(raw: bytes, source: _Source, number: int) -> Line:
    try:
        text = _decoded(raw, source, number)
        return Line(number, text, end=raw[len(raw.rstrip(b"\r\n")) :].decode())
    except SqueezeError as error:
        shown = raw if len(raw) <= source.limit else raw[:_SHOWN_BYTES]
        return Line(number, shown.decode("utf-8", errors="replace").rstrip("\r\n"), str(error))


def _decoded(raw: bytes, source: _Source, number: int) -> str:
    name = source.name
    if number == 1 and raw[_TAR_PLACE] == _TAR_MAGIC:
        raise SqueezeError(f"{name} is a tar archive; unpack it (tar -xf), and name a file in it, or their directory")
    if len(raw) > source.limit:
        raise too_large(f"{name}:{number}: the line", source.limit)
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
    quoted, copy = shlex.quote(name), shlex.quote(f"utf8-{path.name}")
    if path.suffix == ".gz":
        return f"gzip -dc {quoted} | {iconv} | gzip > {copy}"
    return f"{iconv} {quoted} > {copy}"
