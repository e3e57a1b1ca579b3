"""Text that was written elsewhere: read, and parsed as JSON or TOML, with bounds on its size and depth."""

import json
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from biosqueeze.errors import SqueezeError, UsageError

VARIABLE = "BIOSQUEEZE_MAX_RECORD_MB"
# Texts of articles have up to 1 MB. To annotate one takes some 200 times its bytes.
LINE_MEGABYTES = 2
# A parsed document takes 5 to 20 times its bytes. SQuAD's are 42 MB on one line.
DOCUMENT_MEGABYTES = 64
_MEGABYTE = 1 << 20
# Far below Python's own limit, so that what was parsed can also be copied, compared and written.
_MAX_DEPTH = 100
_CONTAINERS = (list, dict)
# tomllib needs minutes for a key of some 10,000 parts.
_DEEP_KEY = re.compile(rf"(?:^|[{{,\[\n])[^.,=\n]{{1,99}}(?:\.[^.,=\n]{{1,99}}){{{_MAX_DEPTH}}}")


def max_line_bytes() -> int:
    """Return the size of the largest line of a file that is read line by line.

    Raises:
        UsageError: the variable is not a whole number of megabytes.
    """
    return (_given_megabytes() or LINE_MEGABYTES) * _MEGABYTE


def max_document_bytes() -> int:
    """Return the size of the largest file that is parsed as a whole.

    Raises:
        UsageError: the variable is not a whole number of megabytes.
    """
    return max(_given_megabytes(), DOCUMENT_MEGABYTES) * _MEGABYTE


def _given_megabytes() -> int:
    """Return what --max-record-mb has set; 0 where it is not given."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 8 and int(text) > 0):
        raise UsageError(f"{VARIABLE}={text!r} is not a number of megabytes; write for example {VARIABLE}=256")
    return int(text)


def too_large(what: str, limit: int) -> SqueezeError:
    """Return the error for a line or file of more bytes; `what` begins the sentence, such as "x.txt:3: the line"."""
    megabytes = limit // _MEGABYTE
    return SqueezeError(
        f"{what} is longer than {megabytes} MB, so it may be damaged or no text; if it is right, allow more with "
        f"--max-record-mb {2 * megabytes}"
    )


def read_text(path: Path) -> str:
    """Read a UTF-8 file that is parsed as a whole.

    Raises:
        OSError: it cannot be read.
        SqueezeError: it is larger than `max_document_bytes`.
        UnicodeDecodeError: it is not UTF-8.
    """
    limit = max_document_bytes()
    with path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise too_large(str(path), limit)
    return content.decode("utf-8")


def nan_as_missing(constant: str) -> float | None:
    """Return None for NaN, as pandas writes a missing value, and infinities as they are; for `parse_json`."""
    return None if constant == "NaN" else float(constant)


def parse_json(
    text: str,
    *,
    object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None,
    parse_constant: Callable[[str], Any] | None = None,
    parse_float: Callable[[str], Any] | None = None,
) -> Any:
    """Parse JSON as `json.loads` does, but report everything that is wrong with the text as a JSONDecodeError.

    Raises:
        JSONDecodeError: the text is not JSON, is nested too deeply, or holds an integer that Python does not convert.
    """
    try:
        values = json.loads(
            text, object_pairs_hook=object_pairs_hook, parse_constant=parse_constant, parse_float=parse_float
        )
    except RecursionError:
        raise json.JSONDecodeError("nested too deeply", text, 0) from None
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        if (number := _endless_integer(text)) is None:
            raise
        raise json.JSONDecodeError("an integer with too many digits", text, number) from error
    if _is_too_deep(values):
        raise json.JSONDecodeError("nested too deeply", text, 0)
    return values


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML as `tomllib.loads` does, but report everything that is wrong with the text as a TOMLDecodeError.

    Raises:
        TOMLDecodeError: the text is not TOML, is nested too deeply, or holds an integer that Python does not convert.
    """
    if _DEEP_KEY.search(text):
        raise tomllib.TOMLDecodeError("nested too deeply")
    try:
        values = tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError("nested too deeply") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError as error:
        number = _endless_integer(text)
        place = "" if number is None else f" (at line {text.count(chr(10), 0, number) + 1})"
        raise tomllib.TOMLDecodeError(f"a number or date out of range{place}") from error
    if _is_too_deep(values):
        raise tomllib.TOMLDecodeError("nested too deeply")
    return values


def _endless_integer(text: str) -> int | None:
    """Return where an integer begins that has more digits than Python converts."""
    match = re.search(rf"(?<!\d)\d[\d_]{{{sys.get_int_max_str_digits()}}}", text)
    return match.start() if match else None


def _is_too_deep(values: Any) -> bool:
    level = [values]
    for _ in range(_MAX_DEPTH):
        level = [item for node in level for item in _items(node) if isinstance(item, _CONTAINERS)]
        if not level:
            return False
    return True


def _items(node: Any) -> Iterable[Any]:
    """Return what a container holds; nothing for another value."""
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()
