"""Parse the options that --grid and --set give as text. Torch-free."""

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from biosqueeze.errors import UsageError
from biosqueeze.options import OptionField, Syntax
from biosqueeze.registry import closest

GridPoint = Mapping[str, Any]  # option values by field name
# Options that change the dev examples or the score: runs with different values cannot be compared.
_INCOMPARABLE = ("data", "task", "metric", "dev_share", "with_dev", "types", "negative", "column", "merge_types")
# Options that say how a training runs, and not what it learns.
_OF_THE_MACHINE = ("auto_batch", "compile", "device", "gradient_checkpointing", "save_every", "tracker", "workers")


def parse_grid(axes: Sequence[str], fields: Mapping[str, OptionField]) -> list[GridPoint]:
    """Return all combinations: ["lr=1e-5,3e-5", "batch=8,16"] gives four points.

    Args:
        axes: NAME=VALUE,VALUE,...; a name may be shortened as long as it fits one option only.
        fields: the options that a grid may have, by name.

    Raises:
        UsageError: there is no such option, a value does not fit its type or is given twice, or runs with different
            values could not be compared.
    """
    values_by_name: dict[str, list[Any]] = {}
    lists = [name for name, option in fields.items() if _is_list(option)]
    for text in axes:
        name, equals, values = text.partition("=")
        if not equals or not all(values.split(",")):
            raise UsageError(f"--grid {text!r} is not of the form NAME=VALUE,VALUE, like lr=1e-5,3e-5")
        option = find_option(name, fields, "--grid", refused=(*_INCOMPARABLE, *_OF_THE_MACHINE, *lists))
        _check_axis(option)
        if option.name in values_by_name:
            raise UsageError(f"--grid: {option.name} is given twice; give all its values in one: {name}=A,B,C")
        values_by_name[option.name] = _parse_axis(name, values.split(","), option)
    return [dict(zip(values_by_name, values, strict=True)) for values in itertools.product(*values_by_name.values())]


def _check_axis(option: OptionField) -> None:
    """Check that the dev scores of runs with different values of an option say which value is better."""
    shown = option.name.replace("_", "-")
    if option.name in _INCOMPARABLE:
        raise UsageError(
            f"--grid: runs with another {shown} cannot be compared by their dev scores; fine-tune once for each"
        )
    if option.name in _OF_THE_MACHINE:
        raise UsageError(
            f"--grid: {shown} says how a training runs, and not what it learns; give --{shown}, for all runs"
        )
    if _is_list(option):
        raise UsageError(f"--grid: a value of {shown} has commas, as between those of --grid; fine-tune once for each")


def _is_list(option: OptionField) -> bool:
    syntax = option.marker(Syntax)
    return syntax is not None and syntax.is_list


def _parse_axis(name: str, texts: Sequence[str], option: OptionField) -> list[Any]:
    """Return the values of one option, and refuse the same value twice (3e-5 and 0.00003)."""
    text_by_value: dict[Any, str] = {}
    for text in texts:
        value = parse_value(text, option, "--grid")
        if value in text_by_value:
            same = text_by_value[value]
            raise UsageError(f"--grid: {name}={text} is the same as {name}={same}; leave one of them out")
        text_by_value[value] = text
    return list(text_by_value)


def find_option(name: str, fields: Mapping[str, OptionField], flag: str, refused: Collection[str] = ()) -> OptionField:
    """Return the option of a name that may be shortened.

    Args:
        name: as given.
        fields: the options, by name.
        flag: that the name was given to, for messages.
        refused: names that are found and left out where all are listed.

    Raises:
        UsageError: the name fits none, or several.
    """
    plain = name.strip().lstrip("-").replace("-", "_")
    matches = [plain] if plain in fields else [known for known in fields if plain and known.startswith(plain)]
    if len(matches) != 1:
        known = matches or [field for field in fields if field not in refused]
        shown = ", ".join(sorted(field.replace("_", "-") for field in known))
        raise UsageError(
            f"{flag}: {name!r} is {'short for several options' if matches else 'no option'}."
            f"{closest(plain, fields)} {'They are' if matches else 'Known'}: {shown}"
        )
    return fields[matches[0]]


def parse_value(text: str, option: OptionField, flag: str) -> Any:
    """Return a value of the option's type; for a repeatable option a tuple of one.

    Raises:
        UsageError: the text does not fit the type, or is none of the option's choices.
    """
    value = _parse_scalar(text, option, flag)
    return (value,) if option.repeated else value


def _parse_scalar(text: str, option: OptionField, flag: str) -> Any:
    if option.literals and text not in option.literals:
        raise UsageError(f"{flag}: {option.name}={text} is none of {', '.join(option.literals)}")
    if option.type is bool:
        if text not in ("true", "false"):
            raise UsageError(f"{flag}: {option.name} is true or false, not {text}")
        return text == "true"
    try:
        value = option.type(text)
    except ValueError as error:
        raise UsageError(f"{flag}: {option.name}={text} is no {option.type.__name__}") from error
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{flag}: {option.name}={text} is not a finite number")
    return value


def format_value(value: Any) -> str:
    """Return a value for messages and names of directories; the items of a repeatable option are joined by +."""
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)
