"""Render options as the words of a command line. Torch-free."""

from collections.abc import Iterable, Mapping
from typing import Any

from biosqueeze import registry
from biosqueeze.options import option_fields


def option_flags(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    """Return the words that set options to these values.

    Args:
        values: by field name. None gives no word, a boolean a flag without a value, a list the flag once per item.
        defaults: the default of each option by field name. Where it is True, False gives `--no-NAME`; else no word.
    """
    words: list[str] = []
    for name, value in values.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words += [f"--{flag}"] if value else [f"--no-{flag}"] * (defaults.get(name) is True)
        elif value is not None:
            items: Iterable[Any] = value if isinstance(value, list | tuple) else [value]
            words += [word for item in items for word in (f"--{flag}", str(item))]
    return words


def option_defaults(stage: str) -> dict[str, Any]:
    """Return the default of each option of a stage by field name; nothing where there is no such stage."""
    if stage not in registry.names("stages"):
        return {}
    return {field.name: field.default for field in option_fields(registry.load("stages", stage).Options)}
