"""Resolve the options of a recipe's step: flag (--set) > environment > recipe > default, as on the command line."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from biosqueeze import registry
from biosqueeze.cli.command import stage_command
from biosqueeze.cli.recipe_file import RecipeStep
from biosqueeze.command_line import option_flags
from biosqueeze.errors import UsageError
from biosqueeze.options import Argument, Syntax
from biosqueeze.options.rules import alternatives
from biosqueeze.options.values import joined

_REFERENCE = "@"


def step_context(
    step: RecipeStep, directory: Path, outputs: Mapping[str, Path], previous: Path | None
) -> click.Context:
    """Return the Click context that the step's command line would have.

    Args:
        step: of the recipe.
        directory: for the outputs of all steps.
        outputs: of the steps before, by name; `@name` in a value refers to one of them.
        previous: the checkpoint that the last of them wrote; the step reads it unless the recipe names another.

    Raises:
        UsageError: a value has the wrong type, or refers to a step that is not before this one.
    """
    values = {key: _value(step, key, _dereference(step, value, outputs)) for key, value in step.table.items()}
    _fill_input(step, values, previous)
    arguments = [key for key in step.overrides if step.fields[key].marker(Argument)]
    for key in arguments:  # set by name: on a command line, only the order tells positional values apart
        overridden = _dereference(step, list(step.overrides[key]), outputs)
        values[key] = overridden if step.fields[key].repeated else overridden[0]
    if "out" in step.fields:
        values.setdefault("out", str(directory / step.name))
    context = _parse(step, values, outputs)
    switched_off = [
        key for key, value in step.overrides.items() if step.fields[key].type is bool and value == ["false"]
    ]
    for key in switched_off:  # there is no flag for it
        context.params[key] = False
    for key in (*arguments, *switched_off):
        context.set_parameter_source(key, ParameterSource.COMMANDLINE)
    return context


def _fill_input(step: RecipeStep, values: dict[str, Any], previous: Path | None) -> None:
    """Set the first positional option to the checkpoint of the step before, unless it or its alternative is given."""
    positional = next((field for field in step.fields.values() if field.marker(Argument)), None)
    if positional is None or positional.name in values or previous is None:
        return
    argument = positional.marker(Argument)
    if argument is None or argument.unless is None or argument.unless not in {**values, **step.overrides}:
        values[positional.name] = [str(previous)] if positional.repeated else str(previous)


def _parse(step: RecipeStep, values: dict[str, Any], outputs: Mapping[str, Path]) -> click.Context:
    command = stage_command(step.stage, step.module)
    environment = f"BIOSQUEEZE_{step.stage.upper()}"
    try:
        flags = _override_flags(step, outputs)
        return command.make_context(step.name, flags, default_map=values, auto_envvar_prefix=environment)
    except click.UsageError as error:
        raise UsageError(f"[{step.name}]: {error.format_message()}") from error


def _value(step: RecipeStep, key: str, value: Any) -> Any:
    """Return the value of an option as Click takes it; one of a repeatable option may be written without brackets.

    Raises:
        UsageError: it is a list, a table, a date, a truth value or a fraction, which the option does not take.
    """
    field = step.fields[key]
    syntax = field.marker(Syntax)
    items = value if isinstance(value, list) else [value]
    for item in items:
        if isinstance(item, float) and field.type is int and not item.is_integer():  # Click would cut it off
            raise UsageError(f"[{step.name}]: {key} = {item!r}, and a whole number was expected")
        is_truth = isinstance(item, bool) and field.type in (int, float)
        if is_truth or not isinstance(item, str | bool | int | float):
            expected = "a number" if field.type in (int, float) else "a text, a number, true or false"
            raise UsageError(f"[{step.name}]: {key} = {item!r}, and {expected} was expected")
    if field.repeated:
        return items
    if not isinstance(value, list):
        return value
    if syntax is None or not syntax.is_list:
        raise UsageError(f"[{step.name}]: {key} = {value!r} is a list; leave the brackets out, it takes one value")
    return joined(f"[{step.name}]: {key}", value, syntax)


def _override_flags(step: RecipeStep, outputs: Mapping[str, Path]) -> list[str]:
    options = {key: texts for key, texts in step.overrides.items() if not step.fields[key].marker(Argument)}
    values = {key: [_override(step, key, text, outputs) for text in texts] for key, texts in options.items()}
    plain = {key: items[-1] if step.fields[key].type is bool else items for key, items in values.items()}
    return option_flags(plain, {name: field.default for name, field in step.fields.items()})


def _override(step: RecipeStep, key: str, text: str, outputs: Mapping[str, Path]) -> bool | str:
    """Return the value that --set gives to one option."""
    if step.fields[key].type is not bool:
        return str(_dereference(step, text, outputs))
    words = step.fields[key].words
    if text in words:
        return text
    if text not in ("true", "false"):
        raise UsageError(f"--set {step.name}.{key}={text}: expected {alternatives(['true', 'false', *words])}")
    return text == "true"


def _dereference(step: RecipeStep, value: Any, outputs: Mapping[str, Path]) -> Any:
    """Replace `@name` by the output of the step of that name."""
    if isinstance(value, list):
        return [_dereference(step, item, outputs) for item in value]
    if not isinstance(value, str) or not value.startswith(_REFERENCE):
        return value
    name = value[len(_REFERENCE) :]
    if name not in outputs:
        raise UsageError(
            f"[{step.name}] refers to {value}, and no step before it is called {name}.{registry.closest(name, outputs)}"
        )
    return str(outputs[name])
