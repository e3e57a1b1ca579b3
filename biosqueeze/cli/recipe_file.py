"""Read a recipe: its steps with their keys, and the --set overrides of these keys."""

import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from biosqueeze import registry
from biosqueeze.cli.recipe_tables import read_tables
from biosqueeze.errors import UsageError
from biosqueeze.options import Hidden, OptionField, option_fields

Overrides = dict[str, list[str]]
STATE_FILE = "recipe-state.json"
_NO_FILE_NAME = re.compile(r"\.{0,2}|.*[/\x00-\x1f\x7f].*|.{100,}", re.DOTALL)
_RESERVED = re.compile(rf"{re.escape(STATE_FILE)}|.*\.(partial|runs)")  # is written beside the outputs


@dataclass(frozen=True)
class RecipeStep:
    """One table of the recipe: its name, its stage, its keys, and the overrides of --set."""

    name: str
    stage: str
    table: dict[str, Any]
    overrides: Overrides

    @property
    def module(self) -> ModuleType:
        """The file of the stage."""
        return registry.load("stages", self.stage)

    @property
    def fields(self) -> dict[str, OptionField]:
        """The options of the stage by name."""
        return {f.name: f for f in option_fields(self.module.Options) if f.marker(Hidden) is None}


def read_recipe(path: Path, overrides: tuple[str, ...], scale: str | None = None) -> list[RecipeStep]:
    """Read and check a recipe at a scale, and its --set overrides.

    Raises:
        UsageError: the file is missing, is no TOML, has no table, or has an unknown scale, stage or key (the nearest
            is named).
    """
    tables = read_tables(path).at(scale, path)
    by_step = _read_overrides(overrides, tables)
    return [_read_step(path, name, table, by_step.get(name, {})) for name, table in tables.items()]


def _read_overrides(overrides: tuple[str, ...], tables: dict[str, Any]) -> dict[str, Overrides]:
    by_step: dict[str, Overrides] = {}
    for override in overrides:
        name, equals, value = override.partition("=")
        step, dot, key = name.partition(".")
        if not equals or not dot:
            raise UsageError(
                f"--set {override!r} is not of the form STEP.OPTION=VALUE; write for example student.steps=10"
            )
        if step not in tables:
            raise UsageError(f"--set {override!r}: the recipe has no step {step!r}.{registry.closest(step, tables)}")
        by_step.setdefault(step, {}).setdefault(key.replace("-", "_"), []).append(value)
    return by_step


def _check_name(path: Path, name: str) -> None:
    """Refuse the names of steps that no directory of the run can have: a step is written to one of its own name."""
    if _NO_FILE_NAME.fullmatch(name) or _RESERVED.fullmatch(name):
        raise UsageError(
            f"{path}: {name[:100]!r} cannot name a step, whose output is a directory of that name; use letters, "
            "digits, - and _"
        )


def _read_step(path: Path, name: str, table: dict[str, Any], overrides: Overrides) -> RecipeStep:
    _check_name(path, name)
    stage = str(table.get("stage", name))
    stages = registry.names("stages")
    if stage not in stages and "stage" in table:
        near = registry.closest(stage, stages)
        raise UsageError(f"{path}: [{name}]: there is no stage {stage!r}.{near} Stages: {', '.join(stages)}")
    if stage not in stages:
        raise UsageError(
            f"{path}: [{name}] is no stage.{registry.closest(stage, stages)} Stages: {', '.join(stages)}; "
            'give a table with another name its stage with stage = "..."'
        )
    keys = {key: value for key, value in table.items() if key != "stage"}
    step = RecipeStep(name, stage, keys, overrides)
    fields = step.fields
    for key in [*keys, *overrides]:
        if key not in fields:
            raise UsageError(f"{path}: [{name}] has an unknown key {key!r}.{registry.closest(key, fields)}")
    for key, values in overrides.items():
        if len(values) > 1 and not fields[key].repeated:
            raise UsageError(f"--set {name}.{key} is given {len(values)} times, and takes one value")
    return step
