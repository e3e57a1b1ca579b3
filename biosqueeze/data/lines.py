"""Lines of a UTF-8 file, plain or gzipped, with their numbers, so that an error can say where it is."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from biosqueeze.errors import SqueezeError

_BOM = "\ufeff"


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    r"""Each line and its number, from 1, without its line end (\n or \r\n) and without a byte order mark.

    Raises:
        SqueezeError: the file cannot be read, is no UTF-8 text, or is a damaged .gz.
    """
    number = 0
    try:
        with _opened(path) as stream:
            for number, raw in enumerate(stream, start=1):
                yield number, _decoded(raw, path, number)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise SqueezeError(
            f"{path}:{number + 1}: the gzip data is damaged ({error}); "
            f"check it with `gzip -t {path}` and fetch it again"
        ) from error
    except OSError as error:
        raise SqueezeError(
            f"{path} cannot be read ({error.strerror or error}); check the path and its rights"
        ) from error


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    with path.open("rb") as plain:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=plain) as unpacked:
                yield unpacked  # type: ignore[misc] # GzipFile reads as a BinaryIO does
        else:
            yield plain


def _decoded(raw: bytes, path: Path, number: int) -> str:
    try:
        line = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        likely = "UTF-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "LATIN1"
        raise SqueezeError(
            f"{path}:{number}: not UTF-8 text (byte 0x{raw[error.start]:02x} at column {error.start + 1}); "
            f"convert it first: {_conversion(path, likely)}"
        ) from error
    if "\0" in line:
        raise SqueezeError(
            f"{path}:{number}: holds NUL bytes, so it is UTF-16 or no text; if it is text, convert it first: "
            f"{_conversion(path, 'UTF-16')}"
        )
    if number == 1:
        line = line.removeprefix(_BOM)
    return line.rstrip("\r\n")


def _conversion(path: Path, encoding: str) -> str:
    """The shell line that makes a UTF-8 copy; only the user can know that the encoding is the one guessed."""
    iconv = f"iconv -f {encoding} -t UTF-8"
    if path.suffix == ".gz":
        return f"gzip -dc {path} | {iconv} | gzip > utf8-{path.name}"
    return f"{iconv} {path} > utf8-{path.name}"
