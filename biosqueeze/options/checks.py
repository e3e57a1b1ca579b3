"""Check the options of a stage by the types, choices, syntax and rules that are declared beside them."""

import sys
from typing import Any

from biosqueeze import registry
from biosqueeze.errors import UsageError
from biosqueeze.options.fields import OptionField, option_fields
from biosqueeze.options.markers import Argument, Choices, Hidden, Syntax
from biosqueeze.options.rules import Rule, Sourced, alternatives, fields_of, flags, is_set


def check_options(options: Sourced, needs_one_of: tuple[str, ...] = ()) -> None:
    """Check all options of a stage.

    Args:
        options: of the stage.
        needs_one_of: options of which at least one must be set.

    Raises:
        UsageError: an option breaks a rule; the sentence names the flag, the value, what is allowed, and the way out.
    """
    fields = [field for field in option_fields(type(options)) if field.marker(Hidden) is None]
    for field in fields:
        error = _value_error(field, getattr(options, field.name)) or _alternative_error(field, options)
        if error:
            raise UsageError(error)
    for field in fields:
        rules = (marker for marker in field.markers if isinstance(marker, Rule))
        for error in (rule.error(field, options) for rule in rules):
            if error:
                raise UsageError(error)
    if needs_one_of and not any(is_set(options, name) for name in needs_one_of):
        raise UsageError(f"nothing to do: give {flags(needs_one_of)}")


def _value_error(field: OptionField, value: Any) -> str | None:
    """Check choices, numbers, and the syntax of texts and names, of every value of a repeatable option."""
    if value is None and not field.optional:
        return f"{field.flag} is None, and a value is needed"
    if field.repeated and field.required and not value:
        return f"{field.flag} is empty, and at least one value is needed"
    choices = field.marker(Choices)
    known = field.literals or (registry.names(choices.package) if choices else ())
    values = [] if value is None else value if field.repeated else [value]
    for item in values:
        if known and item not in known:
            return f"{field.flag} must be {alternatives(known)}, not {item!r}.{registry.closest(str(item), known)}"
        if not _has_type(field, item):
            return f"{field.flag} must be {_expected(field)}, not {item!r}"
        if error := _syntax_error(field, item):
            return error
    return None


def _has_type(field: OptionField, value: Any) -> bool:
    if isinstance(value, bool) or value in field.words:
        return field.type is bool or bool(field.words)
    if field.type is int:
        return isinstance(value, int)
    if field.type is float:
        return isinstance(value, int | float) and abs(value) <= sys.float_info.max  # whole numbers have no limit
    return field.type is not bool and not field.words and (field.type is not str or isinstance(value, str))


def _expected(field: OptionField) -> str:
    if field.words or field.type is bool:
        return alternatives(["True", "False", *map(repr, field.words)])
    return {int: "a whole number", float: "a finite number"}.get(field.type, "a text")


def _syntax_error(field: OptionField, value: Any) -> str | None:
    if value == "" and (field.is_input or field.optional):
        return f"{field.flag} is empty; is a shell variable not set?"
    syntax = field.marker(Syntax)
    if syntax is None or syntax.parse is None:
        return None
    try:
        syntax.parse(value)
    except ValueError:
        return f"{field.flag} {value!r} is not of the form {syntax.metavar}; write for example {syntax.example}"
    return None


def _alternative_error(field: OptionField, options: Sourced) -> str | None:
    """Exactly one of a positional option and its alternative must be set."""
    argument = field.marker(Argument)
    if argument is None or argument.unless is None or argument.unless not in fields_of(options):
        return None
    is_both = is_set(options, field.name)
    if is_both != is_set(options, argument.unless):
        return None
    count = "both were given" if is_both else "neither was given"
    return f"give either {field.flag} (or - in a pipe) or {flags([argument.unless])}, and not both; {count}"
