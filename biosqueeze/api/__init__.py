"""The stages as Python functions: `biosqueeze.shrink("teacher", layers="6")`. Torch-free to import.

The keywords are the options of the command, with the same defaults, rules and errors. A function returns what the
command prints with --json.
"""

import contextlib
import inspect
import logging
import numbers
import os
import re
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from biosqueeze import progress, registry
from biosqueeze.api.result import Result
from biosqueeze.cli.streams import clean_stdout
from biosqueeze.cli.summary import print_summary
from biosqueeze.options import Argument, Hidden, OptionField, StageOptions, Syntax, option_fields
from biosqueeze.options.values import joined
from biosqueeze.suggestions import suggest
from biosqueeze.system import processes

__all__ = ["STAGES", "Result", "stage_function"]

# `tasks` is a package of biosqueeze; its command is for the shell.
STAGES = tuple(name for name in registry.names("stages") if name != "tasks")

# Only the command line reads a path from a pipe.
_PIPED = re.compile(r", ([^,]+), or - for the path on standard input")


def stage_function(name: str) -> Callable[..., Result]:
    """Return the function of a stage, with its signature and documentation."""
    stage = registry.load("stages", name)
    signature = signature_of(stage)

    def function(*positional: Any, **keywords: Any) -> Result:
        arguments = _bound(name, signature, positional, keywords)
        is_quiet = bool(arguments.pop("quiet", False))
        if not stage.Options.SEVERAL_PROCESSES:
            processes.check_alone(name)
        return _run(stage, options_of(stage, arguments), is_quiet)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "biosqueeze"
    function.__doc__ = documentation_of(stage)
    function.__signature__ = signature  # type: ignore[attr-defined] # read by inspect and help()
    return function


def _bound(
    name: str, signature: inspect.Signature, positional: Sequence[Any], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments by parameter.

    Raises:
        TypeError: they do not fit the signature; the message names the function, and the keyword that was meant.
    """
    try:
        return signature.bind(*positional, **keywords).arguments
    except TypeError as error:
        unknown = next((keyword for keyword in keywords if keyword not in signature.parameters), "")
        near = suggest(unknown.replace("_", "-"), [known.replace("_", "-") for known in signature.parameters])
        meant = f". Did you mean {near.name.replace('-', '_')!r}?" if near else ""
        raise TypeError(f"{name}() {error}{meant}") from None


def visible_fields(stage: ModuleType) -> list[OptionField]:
    """Return the options of a stage; the positional ones first, then the required ones."""
    fields = [field for field in option_fields(stage.Options) if field.marker(Hidden) is None]
    return sorted(fields, key=lambda field: (field.marker(Argument) is None, not field.required))


def signature_of(stage: ModuleType) -> inspect.Signature:
    """Return the signature: positional options may be given by position, all others are keywords."""
    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD if field.marker(Argument) else inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.required else field.default,
        )
        for field in visible_fields(stage)
    ]
    quiet = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False)
    return inspect.Signature([*parameters, quiet], return_annotation=Result)


def documentation_of(stage: ModuleType) -> str:
    """Return the description of the stage and the help of its options."""
    lines = [inspect.cleandoc(stage.Options.__doc__ or ""), "", "Args:"]
    helps = {field.name: _PIPED.sub(r", or \1", field.help) for field in visible_fields(stage)}
    lines += [f"    {name}: {text}" for name, text in helps.items()]
    return "\n".join([*lines, "    quiet: Print only warnings and errors."])


def options_of(stage: ModuleType, arguments: Mapping[str, Any]) -> StageOptions:
    """Build the options of a stage from the arguments of its function.

    Raises:
        UsageError: an argument breaks a rule.
    """
    fields = {field.name: field for field in visible_fields(stage)}
    values = {name: _converted(fields[name], value) for name, value in arguments.items()}
    if isinstance(values.get("out"), str):
        values["out"] = os.path.expanduser(values["out"])  # noqa: PTH111 - unlike Path's, it keeps unknown names
    sources = {name: "python" if name in arguments else "default" for name in sorted(fields)}
    options: StageOptions = stage.Options(**values, sources=sources)
    return options


def _converted(field: OptionField, value: Any) -> Any:
    """Convert an argument to the type of the option: paths to text; one value, a list or a dict to a tuple.

    A dict gives `NAME=VALUE`, or `NAME=VALUE,VALUE` of a list, as in `grid={"lr": [1e-4, 3e-4]}`.
    """
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    is_sequence = isinstance(value, list | tuple)
    if field.repeated and isinstance(value, Mapping):
        return tuple(f"{name}={_listed(each)}" for name, each in value.items())
    if field.repeated:
        items = value if is_sequence else [value]
        return tuple(os.fspath(item) if isinstance(item, os.PathLike) else item for item in items)
    syntax = field.marker(Syntax)
    if syntax and syntax.is_list and is_sequence:
        return joined(field.name, value, syntax)
    if isinstance(value, numbers.Real) and not isinstance(value, bool):  # NumPy's too
        value = int(value) if isinstance(value, numbers.Integral) else float(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if field.type is str and is_number else value


def _listed(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _run(stage: ModuleType, options: StageOptions, is_quiet: bool) -> Result:
    with _contained(is_quiet):
        started = time.monotonic()
        outcome = stage.run(options)
        print_summary(outcome.summary, time.monotonic() - started, with_next=False)
        if outcome.blocks:
            progress.print_blocks(outcome.blocks)
    return Result(outcome.path, outcome.facts, _contained_lines(outcome.lines, is_quiet) if outcome.lines else None)


def _contained_lines(lines: Generator[str, None, None], is_quiet: bool) -> Iterator[str]:
    """Compute each chunk in the same surroundings as the stage."""
    with contextlib.closing(lines):
        while True:
            with _contained(is_quiet):
                chunk = next(lines, None)
            if chunk is None:
                return
            yield chunk


@contextlib.contextmanager
def _contained(is_quiet: bool) -> Iterator[None]:
    """Keep standard output clean, and restore every setting of the process afterwards."""
    with _quiet_libraries(), _progress_level(is_quiet), clean_stdout():
        yield


@contextlib.contextmanager
def _progress_level(is_quiet: bool) -> Iterator[None]:
    former = progress.get_level()
    progress.set_level(progress.Level.QUIET if is_quiet else progress.Level.NORMAL)
    try:
        yield
    finally:
        progress.set_level(former)


@contextlib.contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Silence the libraries' warnings, as the command line does, and restore all settings afterwards."""
    variable, level = "TOKENIZERS_PARALLELISM", logging.root.manager.disable
    former = os.environ.get(variable)
    os.environ.setdefault(variable, "false")
    logging.disable(max(level, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
        if former is None:
            os.environ.pop(variable, None)
