"""The names of tags that a file gives as numbers, from a list beside it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from biosqueeze.data.lines import read_document
from biosqueeze.errors import SqueezeError
from biosqueeze.files import read_json

LIST_FILE = "labels.txt"
_INFO_FILE = "dataset_infos.json"
_FEATURE_KEYS = ("feature", "features", "names")  # of a description; other keys are columns


def tag_names(directory: Path, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the names of tags in the order of their numbers; () where the directory has no list of them.

    They are the lines of labels.txt, or the class names in a dataset_infos.json: those of the first of these columns
    that it has, or its only ones. Names that differ between its configurations are not used.

    Raises:
        SqueezeError: a file cannot be read.
    """
    if (directory / LIST_FILE).is_file():
        return tuple(line.strip() for line in read_document(directory / LIST_FILE) if line.strip())
    info = directory / _INFO_FILE
    lists = _class_names(read_json(info)) if info.is_file() else {}
    found = next((lists[column] for column in columns if column in lists), ())
    return found or (next(iter(lists.values())) if len(lists) == 1 else ())


def named_tags(values: Sequence[Any], names: Sequence[str], where: str) -> list[Any]:
    """Replace numbers by the names of tags; other values stay as they are.

    Raises:
        SqueezeError: there are numbers and no names, or a number has no name.
    """
    numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    if not numbers:
        return list(values)
    if not names:
        raise SqueezeError(
            f"{where}: the tags are numbers; write their names beside the data in {LIST_FILE}, one on each line, "
            "in the order of the numbers from 0, such as O, B-Gene, I-Gene (what an "
            f"{_INFO_FILE} has is not read where it has no names for them, or several lists that differ)"
        )
    unnamed = next((number for number in numbers if not 0 <= number < len(names)), None)
    if unnamed is not None:
        raise SqueezeError(f"{where}: tag {unnamed} has no name; the list beside the data has {len(names)} names")
    return [names[value] if isinstance(value, int) else value for value in values]


def _class_names(value: Any, column: str = "") -> dict[str, tuple[str, ...]]:
    """Return the class names of every column in a description of features, at any depth.

    Returns:
        () for a column with several lists that differ, as in several configurations.
    """
    if not isinstance(value, Mapping):
        return {}
    names = value.get("names")
    if value.get("_type") == "ClassLabel" and isinstance(names, list) and all(isinstance(n, str) for n in names):
        return {column: tuple(names)}
    found: dict[str, tuple[str, ...]] = {}
    for key, item in value.items():
        for name, each in _class_names(item, column if key in _FEATURE_KEYS else key).items():
            found[name] = each if found.get(name, each) == each else ()
    return found
