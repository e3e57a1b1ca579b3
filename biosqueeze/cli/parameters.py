"""Convert the fields of an `Options` dataclass to Click parameters, and their values back to `Options`."""

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from biosqueeze import registry
from biosqueeze.cli.help import StageOption, condition
from biosqueeze.cli.streams import STDIN, read_dashes
from biosqueeze.options import (
    Argument,
    Choices,
    Data,
    Hidden,
    OnDisk,
    OptionField,
    Short,
    StageOptions,
    Suggests,
    option_fields,
)

_SOURCES = {
    ParameterSource.COMMANDLINE: "flag",
    ParameterSource.ENVIRONMENT: "environment",
    ParameterSource.DEFAULT_MAP: "recipe",
}


class Text(click.types.StringParamType):
    """Text; the shell completes it with file names, because most texts are paths."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """Let the shell complete file names."""
        return [CompletionItem(incomplete, type="file")]


class NameOrText(Text):
    """Text that is one of some names, which the shell completes, or something else."""

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self.names = names

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names that begin like this; where there are none, let the shell complete file names."""
        names = [CompletionItem(name) for name in self.names() if name.startswith(incomplete)]
        return names or super().shell_complete(ctx, param, incomplete)


class Number(click.types.FloatParamType):
    """A finite number; NaN and infinity are refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse the number.

        Raises:
            click.BadParameter: the text is no finite number.
        """
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class Switch(click.types.BoolParamType):
    """On, off, or one of a few words."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool | str:  # type: ignore[override]
        """Return a known word as it is, and parse any other text as a boolean.

        Raises:
            click.BadParameter: the text is neither.
        """
        return value if value in self.words else super().convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """Let the shell complete the words."""
        return [CompletionItem(word) for word in self.words if word.startswith(incomplete)]


class Choice(click.Choice[str]):
    """One of several names; the error for another one names the nearest."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Return Click's message, with the name that was meant."""
        return super().get_invalid_choice_message(value, ctx) + registry.closest(str(value), self.choices)


def parameters(options: type[StageOptions]) -> list[click.Parameter]:
    """Return one Click parameter for each field that is not hidden."""
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
    flag = field.flag
    text = field.help + condition(field)
    if field.words:
        return StageOption(
            [flag, field.name],
            field=field,
            default=field.default,
            type=Switch(field.words),
            metavar=field.metavar,
            help=text,
        )
    if field.type is bool:
        declaration = f"{flag}/--no-{flag[2:]}" if field.default else flag
        return StageOption([declaration, field.name], field=field, is_flag=True, default=field.default, help=text)
    # For Click, None is a default like any other: a required option must have none.
    default = {} if field.required else {"default": field.default}
    short = field.marker(Short)
    return StageOption(
        [*([f"-{short.letter}"] if short else []), flag, field.name],
        field=field,
        **default,
        type=_click_type(field),
        multiple=field.repeated,
        required=field.required,
        show_default=field.default not in (None, ()),
        metavar=None if field.literals or field.marker(Choices) else field.metavar,
        help=text,
    )


def _click_type(field: OptionField) -> Any:
    choices = field.marker(Choices)
    if choices is not None:
        return Choice(registry.names(choices.package))
    if field.literals:
        return Choice(field.literals)
    suggested = field.marker(Suggests)
    if suggested is not None:
        return NameOrText(suggested.find)
    return {str: Text(), float: Number()}.get(field.type, field.type)


def arguments_of(options: type[StageOptions]) -> list[tuple[str, str]]:
    """Return names and help of the positional fields, which Click does not show."""
    positional = [field for field in option_fields(options) if field.marker(Argument)]
    return [(field.flag + ("..." if field.repeated else ""), field.help) for field in positional]


def read_options(stage: ModuleType, context: click.Context) -> StageOptions:
    """Build the stage's `Options` from a Click context; `-` as a path is replaced by that on standard input.

    Raises:
        UsageError: an option breaks a rule, or there is no single path on standard input.
    """
    names = {f.name for f in option_fields(stage.Options) if f.marker(Hidden) is None}
    values = {name: value for name, value in context.params.items() if name in names}
    if values.get("out"):
        values["out"] = str(Path(values["out"]).expanduser())  # no shell expands ~ in a recipe
    sources = {
        name: _SOURCES.get(context.get_parameter_source(name) or ParameterSource.DEFAULT, "default") for name in names
    }
    data = {field.name: field for field in option_fields(stage.Options) if field.marker(Data)}
    places = {field.name for field in option_fields(stage.Options) if field.marker(OnDisk)} - data.keys()
    on_stdin = any(values[name] == STDIN for name, field in data.items() if field.marker(Argument))
    paths = read_dashes({k: v for k, v in values.items() if k in places}, data_on_stdin=on_stdin)
    options: StageOptions = stage.Options(**{**values, **paths}, sources=dict(sorted(sources.items())))
    return options
