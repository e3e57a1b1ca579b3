"""From a stage's `Options` dataclass to a Click command, and from Click's values back to `Options`."""

import math
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from biosqueeze import registry
from biosqueeze.cli.streams import STDIN, read_dashes
from biosqueeze.options import Argument, Choices, Data, Hidden, OptionField, Short, StageOptions, option_fields

_SOURCES = {
    ParameterSource.COMMANDLINE: "flag",
    ParameterSource.ENVIRONMENT: "environment",
    ParameterSource.DEFAULT_MAP: "recipe",
}


class Text(click.types.StringParamType):
    """Free text; the shell completes it with file names, for most of it is paths."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """Leave it to the shell."""
        return [CompletionItem(incomplete, type="file")]


class Number(click.types.FloatParamType):
    """A number as people mean it: neither NaN nor infinite, which nothing can be counted or trained with."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it.

        Raises:
            click.BadParameter: it is none.
        """
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


def parameters(options: type[StageOptions]) -> list[click.Parameter]:
    """One Click parameter for each field that is not hidden."""
    fields = [f for f in option_fields(options) if f.marker(Hidden) is None]
    return [_argument(f) if f.marker(Argument) else _option(f) for f in fields]


def _argument(field: OptionField) -> click.Argument:
    name = field.name.upper() + ("..." if field.repeated else "")
    return click.Argument(
        [field.name],
        nargs=-1 if field.repeated else 1,
        required=field.required,
        metavar=name if field.required else f"[{name}]",
        type=_click_type(field),
    )


def _option(field: OptionField) -> click.Option:
    flag = f"--{field.name.replace('_', '-')}"
    if field.type is bool:
        declaration = f"{flag}/--no-{flag[2:]}" if field.default else flag
        return click.Option([declaration, field.name], is_flag=True, default=field.default, help=field.help)
    # Click takes a default of None for a value, and a required option would never be missed.
    default = {} if field.required else {"default": field.default}
    short = field.marker(Short)
    return click.Option(
        [*([f"-{short.letter}"] if short else []), flag, field.name],
        **default,
        type=_click_type(field),
        multiple=field.repeated,
        required=field.required,
        show_default=field.default not in (None, ()),
        metavar=_metavar(field),
        help=field.help,
    )


def _click_type(field: OptionField) -> Any:
    choices = field.marker(Choices)
    if choices is not None:
        return click.Choice(registry.names(choices.package))
    if field.literals:
        return click.Choice(field.literals)
    return {str: Text(), float: Number()}.get(field.type, field.type)


def _metavar(field: OptionField) -> str | None:
    if field.literals or field.marker(Choices):
        return None
    return {int: "N", float: "X", str: "TEXT"}[field.type]


def arguments_help(options: type[StageOptions]) -> str:
    """The help of the positional fields, which Click does not show by itself."""
    positional = [f for f in option_fields(options) if f.marker(Argument)]
    return "\n\n".join(f"{field.name.upper()}: {field.help}" for field in positional)


def read_options(stage: ModuleType, context: click.Context) -> StageOptions:
    """Build the stage's `Options` from a Click context, `-` replaced by the path on standard input."""
    names = {f.name for f in option_fields(stage.Options) if f.marker(Hidden) is None}
    values = {name: value for name, value in context.params.items() if name in names}
    if values.get("out"):
        values["out"] = str(Path(values["out"]).expanduser())  # in a recipe no shell has expanded it
    sources = {
        name: _SOURCES.get(context.get_parameter_source(name) or ParameterSource.DEFAULT, "default") for name in names
    }
    data = {field.name: field for field in option_fields(stage.Options) if field.marker(Data)}
    on_stdin = any(values[name] == STDIN for name, field in data.items() if field.marker(Argument))
    paths = read_dashes({k: v for k, v in values.items() if k not in data}, data_on_stdin=on_stdin)
    options: StageOptions = stage.Options(**{**values, **paths}, sources=dict(sorted(sources.items())))
    return options
