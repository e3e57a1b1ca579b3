"""Parse option values that are texts with several parts. A ValueError says that the text is not of the form."""

import math
import re
from collections.abc import Iterable
from typing import Any

from biosqueeze.errors import UsageError
from biosqueeze.options.markers import Syntax

AUTO_DEVICE = "auto"
_AMOUNT = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([KMB]?)", re.IGNORECASE)
_UNITS = {"": 1, "K": 1_000, "M": 1_000_000, "B": 1_000_000_000}
_DEVICE = re.compile(r"auto|cpu|mps|(cuda|xpu)(:\d{1,3})?")


def whole_numbers(text: str) -> tuple[int, ...]:
    """Parse positive whole numbers with commas, such as 1,8; a number that is repeated counts once.

    Raises:
        ValueError: a part is no positive whole number.
    """
    numbers = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    if min(numbers) < 1:
        raise ValueError(text)
    return numbers


def positive_numbers(text: str) -> tuple[float, ...]:
    """Parse positive finite numbers with commas, such as 2,1 or 0.5,0.5.

    Raises:
        ValueError: a part is no positive finite number.
    """
    numbers = tuple(float(part) for part in text.split(","))
    if not all(0 < number < math.inf for number in numbers):
        raise ValueError(text)
    return numbers


def joined(name: str, items: Iterable[Any], syntax: Syntax) -> str:
    """Return the items of a list as one text with commas.

    Args:
        name: of the option, for the error.
        items: numbers or texts.
        syntax: of the option; see `Syntax.number_is_count`.

    Raises:
        UsageError: an item has a comma.
    """
    texts = list(map(str, items))
    wrong = next((text for text in texts if "," in text), None)
    if wrong is not None:
        raise UsageError(f"{name}: {wrong!r} has a comma, which separates the items")
    is_like_a_count = syntax.number_is_count and len(texts) == 1 and texts[0].isdecimal()
    return ",".join(texts) + ("," if is_like_a_count else "")


def named_number(text: str) -> tuple[str, float]:
    """Parse NAME=NUMBER, such as f1=0.80.

    Raises:
        ValueError: there is no name, or no finite number.
    """
    name, _, value = text.partition("=")
    number = float(value)
    if not name or not math.isfinite(number):
        raise ValueError(text)
    return name, number


def amount(text: str) -> int:
    """Parse a positive number with an optional unit, K, M or B: 15M, 0.7M or 700000.

    Raises:
        ValueError: the text is none, or less than one.
    """
    match = _AMOUNT.fullmatch(text)
    number = round(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
    if number < 1:
        raise ValueError(text)
    return number


def device_name(text: str) -> str:
    """Return the name of a device of PyTorch.

    Raises:
        ValueError: it is none.
    """
    if not _DEVICE.fullmatch(text):
        raise ValueError("expected auto, cpu, cuda, cuda:1 or mps")
    return text
