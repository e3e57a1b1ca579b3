"""Read the tables of a recipe: those of the recipe that it extends, its own, and those of the chosen scale.

extends = "pubmedbert"          # the steps of another recipe in this folder, or of a shipped one
leave_out = ["vocab"]           # steps of it that this one has not

[pretrain]                      # keys replace inherited ones; a table that names its stage replaces all of them
adversarial = true

[scale.laptop.pretrain]         # keys of a step under --scale laptop
steps = 100
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from biosqueeze import registry
from biosqueeze.cli.shipped_recipes import shipped_recipes
from biosqueeze.errors import UsageError
from biosqueeze.files.parsing import parse_toml, read_text

Tables = dict[str, dict[str, Any]]  # keys by step
_SCALE, _EXTENDS, _LEAVE_OUT = "scale", "extends", "leave_out"
_TEXTS = ("description", _EXTENDS)
_MOST_EXTENSIONS = 8


@dataclass(frozen=True)
class RecipeTables:
    """The tables of a recipe, before their keys are checked."""

    steps: Tables
    scales: dict[str, Tables] = field(default_factory=dict)  # by name of the scale

    def at(self, scale: str | None, path: Path) -> Tables:
        """Return the keys of each step at a scale.

        Raises:
            UsageError: the recipe has no such scale, or the scale has a step that the recipe lacks.
        """
        if scale is None:
            return self.steps
        if scale not in self.scales:
            known = f"it has {' and '.join(self.scales)}" if self.scales else "it has none; leave --scale out"
            near = registry.closest(scale, self.scales)
            raise UsageError(f"--scale {scale}: {path} has no such scale.{near} {known[0].upper()}{known[1:]}")
        for step in self.scales[scale]:
            if step not in self.steps:
                near = registry.closest(step, self.steps)
                raise UsageError(f"{path}: [{_SCALE}.{scale}.{step}] is of no step of the recipe.{near}")
        return _merged(self.steps, self.scales[scale])


def read_tables(path: Path) -> RecipeTables:
    """Read a recipe and those that it extends.

    Raises:
        UsageError: a file is missing, is no TOML, or has no table.
    """
    tables = _extended(path, 0)
    if not tables.steps:
        raise UsageError(f"{path} has no table; a recipe has one for each step, such as [shrink]")
    return tables


def _extended(path: Path, depth: int) -> RecipeTables:
    document = _document(path)
    scales = document.pop(_SCALE, {})
    own = RecipeTables({name: table for name, table in document.items() if isinstance(table, dict)}, scales)
    base = document.get(_EXTENDS)
    if base is None:
        return own
    if depth == _MOST_EXTENSIONS:
        raise UsageError(f"{path} extends a recipe that extends another, and so on without an end")
    inherited = _without(_extended(_base_path(path, base), depth + 1), document.get(_LEAVE_OUT, []), path)
    names = [*inherited.scales, *(name for name in scales if name not in inherited.scales)]
    merged = {name: _merged(inherited.scales.get(name, {}), scales.get(name, {})) for name in names}
    return RecipeTables(_merged(inherited.steps, own.steps), merged)


def _document(path: Path) -> dict[str, Any]:
    """Read the file, and check what is outside of the steps."""
    try:
        document: dict[str, Any] = parse_toml(read_text(path).removeprefix("\ufeff"))  # as editors on Windows write it
    except FileNotFoundError as error:
        raise UsageError(f"there is no recipe {path}; name a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    for key, value in document.items():
        if key == _SCALE:
            _check_scales(path, value)
            document[key] = {name: _with_underscores(path, f"{key}.{name}.", steps) for name, steps in value.items()}
        elif key == _LEAVE_OUT:
            _check_left_out(path, document)
        elif not isinstance(value, dict) and not (key in _TEXTS and isinstance(value, str)):
            raise UsageError(f"{path}: {key!r} is outside of a table; put it below its step, such as [shrink]")
    tables = {name: table for name, table in document.items() if isinstance(table, dict) and name != _SCALE}
    return document | _with_underscores(path, "", tables)


def _with_underscores(path: Path, prefix: str, tables: Tables) -> Tables:
    """Return the tables with keys as options are named, in which `batch-size` is `batch_size`."""
    renamed: Tables = {}
    for step, table in tables.items():
        keys = renamed[step] = {}
        for key, value in table.items():
            name = key.replace("-", "_")
            if name in keys:
                raise UsageError(f"{path}: [{prefix}{step}] has {name} twice, with - and with _; leave one out")
            keys[name] = value
    return renamed


def _check_scales(path: Path, scales: Any) -> None:
    tables = scales.values() if isinstance(scales, dict) else [None]
    if not all(isinstance(table, dict) and all(isinstance(keys, dict) for keys in table.values()) for table in tables):
        raise UsageError(f"{path}: {_SCALE} has tables for steps, such as [{_SCALE}.laptop.distill]")


def _check_left_out(path: Path, document: Mapping[str, Any]) -> None:
    steps = document[_LEAVE_OUT]
    if _EXTENDS not in document or not isinstance(steps, list) or not all(isinstance(step, str) for step in steps):
        raise UsageError(f'{path}: {_LEAVE_OUT} lists steps of the recipe that is extended, such as ["vocab"]')


def _base_path(path: Path, base: str) -> Path:
    """Return the file of the recipe that is extended: beside this one, else a shipped one."""
    beside = path.parent / f"{base.removesuffix('.toml')}.toml"
    shipped = shipped_recipes()
    if beside.is_file() and not beside.samefile(path):
        return beside
    if base not in shipped:
        raise UsageError(f"{path} extends {base!r}, which is no recipe.{registry.closest(base, shipped)}")
    return shipped[base]


def _without(tables: RecipeTables, left_out: list[str], path: Path) -> RecipeTables:
    for step in left_out:
        if step not in tables.steps:
            near = registry.closest(step, tables.steps)
            raise UsageError(f"{path}: {_LEAVE_OUT} names {step!r}, which the extended recipe has not.{near}")
    scales = {name: _dropped(steps, left_out) for name, steps in tables.scales.items()}
    return RecipeTables(_dropped(tables.steps, left_out), scales)


def _dropped(tables: Tables, names: list[str]) -> Tables:
    return {name: table for name, table in tables.items() if name not in names}


def _merged(base: Tables, changes: Tables) -> Tables:
    """Replace keys of tables; a table that names its stage replaces the whole one."""
    names = [*base, *(name for name in changes if name not in base)]
    return {
        name: changes[name] if "stage" in changes.get(name, {}) else {**base.get(name, {}), **changes.get(name, {})}
        for name in names
    }
