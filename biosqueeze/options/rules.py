"""Rules of option values, declared as markers beside the option; `checks.check_options` applies them.

A rule has a `hint` for the help ("needs --cache-teacher") and an `error`: a sentence with the flag, its value, what is
allowed and what to type.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from biosqueeze import registry
from biosqueeze.options.fields import OptionField, flag_of, option_fields
from biosqueeze.options.markers import Argument, Data

_STREAM = "-"
_OFF = (None, (), "", 0, False, "none", _STREAM)


class Sourced(Protocol):
    """Options with the source of each value."""

    @property
    def sources(self) -> Mapping[str, str]:
        """Flag, environment, recipe or python by option; "default" or missing if the option was not given."""


def fields_of(options: Sourced) -> dict[str, OptionField]:
    """Return the fields of the options' class by name."""
    return {field.name: field for field in option_fields(type(options))}


def is_set(options: Sourced, name: str) -> bool:
    """Whether an option has another value than its default. Empty text, and the stream of `--out -`, do not count."""
    field = fields_of(options)[name]
    value = getattr(options, name)
    is_stream = value == _STREAM and field.marker(Data) is not None and field.marker(Argument) is None
    return value not in (field.default, "") and not is_stream


def is_given(options: Sourced, name: str) -> bool:
    """Whether an option was given: its value is not the default, or the user wrote the default.

    A written default that turns the option off (False, 0, "none") does not count.
    """
    is_written = options.sources.get(name, "default") != "default"
    return is_set(options, name) or (is_written and getattr(options, name) not in _OFF)


def alternatives(words: Iterable[str]) -> str:
    """Join words: "a", "a or b", "a, b or c"."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def flags(names: Iterable[str]) -> str:
    """Join options as flags: "--grid, --seeds or --folds"."""
    return alternatives(map(flag_of, names))


class Rule(ABC):
    """A condition on the value of an option."""

    @abstractmethod
    def hint(self, field: OptionField) -> str:
        """Return the condition in a few words, for the help."""

    @abstractmethod
    def error(self, field: OptionField, options: Sourced) -> str | None:
        """Return a sentence if the option is given and breaks the rule, else None."""


@dataclass(frozen=True, kw_only=True)
class Bounds(Rule):
    """The range of a number; None is not checked."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def hint(self, field: OptionField) -> str:  # noqa: ARG002
        """Return such as "1 or more", "0 to 1" or "above 0, below 1"."""
        if self.least is not None and self.most is not None:
            return f"{_number(self.least)} to {_number(self.most)}"
        if self.least is not None and self.below is None:
            return f"{_number(self.least)} or more"
        return ", ".join(self._limits())

    def error(self, field: OptionField, options: Sourced) -> str | None:
        """Compare the value with the limits."""
        value = getattr(options, field.name)
        if value is None or self._holds(value):
            return None
        return f"{field.flag} must be {' and '.join(self._limits())}, not {_number(value)}"

    def _holds(self, value: float) -> bool:
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def _limits(self) -> list[str]:
        limits = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        return [f"{word} {_number(limit)}" for word, limit in limits.items() if limit is not None]


def between_0_and_1() -> Bounds:
    """Return the range of a share; neither 0 nor 1 is in it."""
    return Bounds(above=0, below=1)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


class Requires(Rule):
    """An option that has no effect unless one of others is set. `why` says what it needs them for."""

    def __init__(self, *names: str, why: str = "") -> None:
        self.names, self.why = names, why

    def hint(self, field: OptionField) -> str:  # noqa: ARG002
        """Return such as "needs --data"."""
        return f"needs {flags(self.names)}"

    def error(self, field: OptionField, options: Sourced) -> str | None:
        """Check that one of the others is set. An option that the class lacks is not checked."""
        fields = fields_of(options)
        known = [name for name in self.names if name in fields]
        if not known or not is_given(options, field.name) or any(is_set(options, name) for name in known):
            return None
        needed = alternatives(f"{fields[name].flag} {fields[name].metavar}".strip() for name in known)
        return f"{field.flag} needs {flags(known)}{_bracketed(self.why)}; give {needed} too, or leave {field.flag} out"


class Excludes(Rule):
    """An option that cannot be combined with others. `why` is the reason."""

    def __init__(self, *names: str, why: str = "") -> None:
        self.names, self.why = names, why

    def hint(self, field: OptionField) -> str:  # noqa: ARG002
        """Return such as "not with --student"."""
        return f"not with {flags(self.names)}"

    def error(self, field: OptionField, options: Sourced) -> str | None:
        """Check that none of the others is set."""
        excluded = next((name for name in self.names if is_set(options, name)), None)
        if excluded is None or not is_given(options, field.name):
            return None
        return f"{field.flag} cannot be combined with {flags([excluded])}{_bracketed(self.why)}; give one of the two"


class OnlyWith(Rule):
    """An option that is for some values of another option. `why` is the reason."""

    def __init__(self, name: str, *values: str, why: str = "") -> None:
        self.name, self.values, self.why = name, values, why

    def hint(self, field: OptionField) -> str:  # noqa: ARG002
        """Return such as "only with --format jsonl"."""
        return f"only with {flags([self.name])} {alternatives(self.values)}"

    def error(self, field: OptionField, options: Sourced) -> str | None:
        """Compare the value of the other option."""
        value = getattr(options, self.name)
        if value in self.values or not is_given(options, field.name):
            return None
        return (
            f"{field.flag} is only for {flags([self.name])} {alternatives(self.values)}, not {value}"
            f"{_bracketed(self.why)}; give that, or leave {field.flag} out"
        )


class UsedBy(Rule):
    """An option that is for some plugins alone: those whose file names it in USES.

    Args:
        package: the folder of the plugins.
        name: the option that selects the plugin.
    """

    def __init__(self, package: str, name: str) -> None:
        self.package, self.name = package, name

    def hint(self, field: OptionField) -> str:
        """Return such as "only with --method inc-static"."""
        return f"only with {flags([self.name])} {alternatives(self._plugins(field))}"

    def error(self, field: OptionField, options: Sourced) -> str | None:
        """Check that the selected plugin uses the option."""
        fitting, selected = self._plugins(field), getattr(options, self.name)
        if selected in fitting or not is_given(options, field.name):
            return None
        flag = flags([self.name])
        return f"{field.flag} is not for {flag} {selected}; leave it out, or give {flag} {alternatives(fitting)}"

    def _plugins(self, field: OptionField) -> list[str]:
        return [name for name in registry.names(self.package) if field.name in registry.uses(self.package, name)]


def _bracketed(reason: str) -> str:
    return f" ({reason})" if reason else ""
