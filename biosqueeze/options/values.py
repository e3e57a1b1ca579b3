"""Parse option values that are texts with several parts. A ValueError says that the text is not of the form."""

import math
import re

AUTO_DEVICE = "auto"
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


def device_name(text: str) -> str:
    """Return the name of a device of PyTorch.

    Raises:
        ValueError: it is none.
    """
    if not _DEVICE.fullmatch(text):
        raise ValueError("expected auto, cpu, cuda, cuda:1 or mps")
    return text
