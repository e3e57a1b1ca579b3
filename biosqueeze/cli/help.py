"""Print the help of commands: options in sections, examples, commands by purpose. Plain text, 80 columns."""

import os
import shlex
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import click

from biosqueeze.options import Common, Group, OptionField, Purpose
from biosqueeze.options.rules import Bounds, Rule
from biosqueeze.suggestions import suggest

Example = tuple[str, str]
"""Description and command."""
# With fewer options than these, all of them fit on one screen: no section of common ones.
_MANY_OPTIONS = 15
_FLAG_WIDTH = 26
_CONTINUATION = " \\"


class StageOption(click.Option):
    """A Click option that belongs to a section of the help."""

    def __init__(
        self,
        *args: Any,
        field: OptionField | None = None,
        group: Group = Group.MAIN,
        bounds: str = "",
        **keywords: Any,
    ) -> None:
        super().__init__(*args, **keywords)
        self.group, self.is_common, self.bounds = group, False, bounds
        self.words: tuple[str, ...] = ()
        if field:
            self.words = field.words
            self.group = field.marker(Group) or group
            self.is_common = field.marker(Common) is not None
            limits = field.marker(Bounds)
            self.bounds = limits.hint(field) if limits else bounds

    @property
    def variable(self) -> str:
        """The end of its environment variable: the name of the flag, which need not be that of the parameter."""
        return max(self.opts, key=len).lstrip("-").replace("-", "_").upper()

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the value of its environment variable, if that is set and not empty."""
        return os.environ.get(f"{ctx.auto_envvar_prefix}_{self.variable}") or None

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Add the bounds and a short default to what Click shows in brackets."""
        extra = super().get_help_extra(ctx)
        if "default" in extra:
            extra["default"] = _shown(self.default)
        if self.bounds:
            extra["range"] = self.bounds
        return extra


class StageCommand(click.Command):
    """A Click command whose help lists arguments, options in sections, and examples."""

    def __init__(
        self, *args: Any, arguments: Sequence[tuple[str, str]], examples: Sequence[Example], **keywords: Any
    ) -> None:
        super().__init__(*args, **keywords)
        self.arguments, self.examples = arguments, examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words; a switch takes the next one only where it is one of its own, as in --resume auto.

        Raises:
            click.UsageError: there is no such option; the message names the one that was meant.
        """
        options = [option for option in self.params if isinstance(option, StageOption)]
        words = {flag: option.words for option in options for flag in option.opts if option.words}
        pairs = zip(args, [*args[1:], ""], strict=False)
        explicit = [f"{arg}=true" if arg in words and following not in words[arg] else arg for arg, following in pairs]
        try:
            return super().parse_args(ctx, explicit)
        except click.NoSuchOption as error:
            raise click.UsageError(self._no_such_option(error.option_name), ctx) from error

    def _no_such_option(self, flag: str) -> str:
        """Return the message for an unknown option."""
        positional = {str(p.name): p for p in self.params if isinstance(p, click.Argument)}
        flags = [name for p in self.params if isinstance(p, click.Option) for name in p.opts]
        suggestion = suggest(flag.lstrip("-"), [*positional, *flags])
        if suggestion is None:
            return f"No such option {flag!r}."
        if suggestion.name in positional:
            return f"no option {flag}; {suggestion.name.upper()} is given without a flag here"
        if suggestion.is_synonym:
            return f"no option {flag}; it is {suggestion.name} here"
        return f"No such option {flag!r}. Did you mean {suggestion.name!r}?"

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the arguments, then every section that has options."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": list(self.arguments)}
        for option in self._in_sections(ctx):
            record = option.get_help_record(ctx)
            if record:
                sections.setdefault(self._section_of(option), []).append(record)
        _write_sections(formatter, sections)

    def _in_sections(self, ctx: click.Context) -> list[click.Parameter]:
        order = [group.value for group in Group]
        options = [parameter for parameter in self.get_params(ctx) if isinstance(parameter, click.Option)]
        return sorted(options, key=lambda option: order.index(self._section_of(option)))

    def _section_of(self, option: click.Parameter) -> str:
        if not isinstance(option, StageOption):
            return Group.GENERAL.value
        options = [p for p in self.params if isinstance(p, StageOption) and p.group is not Group.GENERAL]
        is_common = option.is_common and len(options) >= _MANY_OPTIONS
        return (Group.COMMON if is_common else option.group).value

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the examples."""
        write_examples(formatter, self.examples)


def _write_sections(formatter: click.HelpFormatter, sections: dict[str, list[tuple[str, str]]]) -> None:
    """Write sections of names and texts. The texts are aligned; a name that is too wide has a line of its own."""
    names = [name for rows in sections.values() for name, _ in rows if len(name) <= _FLAG_WIDTH]
    width = max(map(len, names), default=0)
    for title, rows in sections.items():
        if rows:
            with formatter.section(title):
                for name, text in rows:
                    _write_definition(formatter, name, text, width)


def _write_definition(formatter: click.HelpFormatter, name: str, text: str, width: int) -> None:
    """Unlike Click, never break a line at the hyphen of a flag or a name."""
    margin = " " * formatter.current_indent
    indent = f"{margin}{'':{width}}  "
    wrapped = textwrap.wrap(text, formatter.width - len(indent), break_on_hyphens=False, break_long_words=False)
    first, *rest = wrapped or [""]
    if len(name) <= width:
        formatter.write(f"{margin}{name:{width}}  {first}".rstrip() + "\n")
    else:
        formatter.write(f"{margin}{name}\n{indent}{first}\n")
    for line in rest:
        formatter.write(f"{indent}{line}\n")


def write_overview(
    formatter: click.HelpFormatter, commands: Iterable[tuple[Purpose, str, str]], options: list[tuple[str, str]]
) -> None:
    """Write the commands by purpose, and the options of the program.

    Args:
        formatter: of the help.
        commands: purpose, name and summary.
        options: flags and help.
    """
    sections: dict[str, list[tuple[str, str]]] = {purpose.value: [] for purpose in Purpose}
    for purpose, name, summary in commands:
        sections[purpose.value].append((name, summary))
    _write_sections(formatter, {**sections, Group.MAIN.value: options})


def write_examples(formatter: click.HelpFormatter, examples: Sequence[Example]) -> None:
    """Write descriptions and commands; a long command continues on the next line as a shell reads it."""
    with formatter.section("Examples"):
        for number, (description, command) in enumerate(examples):
            if number:
                formatter.write("\n")
            indent = " " * formatter.current_indent
            formatter.write(f"{indent}{description}:\n")
            for line in wrapped_command(command, formatter.width - len(indent) - 2):
                formatter.write(f"{indent}  {line}\n")


def wrapped_command(command: str, width: int) -> list[str]:
    """Break a command into lines before flags and pipes; each line but the last ends with a backslash."""
    parts: list[str] = []
    for word in command.split(" "):
        if (word.startswith("-") and word != "-") or word == "|" or not parts:
            parts.append(word)
        else:
            parts[-1] += f" {word}"
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + 1 + len(part) <= width - len(_CONTINUATION):
            lines[-1] += f" {part}"
        else:
            lines[-1] += _CONTINUATION
            lines.append(f"  {part}")
    return lines


def words_of(command: str) -> list[str]:
    """Return the arguments of the last `biosqueeze` command of a pipe, without the names of program and command."""
    return shlex.split(command.split("|")[-1])[2:]


def condition(field: OptionField) -> str:
    """Return the rules of an option in brackets, such as " (needs --data)", without its bounds."""
    rules = [marker for marker in field.markers if isinstance(marker, Rule) and not isinstance(marker, Bounds)]
    return f" ({'; '.join(rule.hint(field) for rule in rules)})" if rules else ""


def _shown(value: Any) -> str:
    """A default as a user would type it: 5e-5 and 3, not 5e-05 and 3.0."""
    return f"{value:g}".replace("e-0", "e-") if isinstance(value, float) else str(value)
