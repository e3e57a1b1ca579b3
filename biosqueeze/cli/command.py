"""What every subcommand does the same way: its flags, its one line on standard output, its plan."""

import inspect
import json
import logging
import os
import warnings
from collections.abc import Generator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from biosqueeze import processes, progress
from biosqueeze.cli.parameters import arguments_help, parameters, read_options
from biosqueeze.cli.streams import stdout_kept_clean, write_lines
from biosqueeze.errors import UsageError
from biosqueeze.options import Outcome, Plan
from biosqueeze.registry import closest
from biosqueeze.training.options import TrainingOptions


def common_options() -> list[click.Parameter]:
    """The flags that belong to the command line and not to a stage."""
    return [
        click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object instead of the path."),
        click.Option(["--dry-run"], is_flag=True, help="Say what would happen, and write nothing."),
        click.Option(["-q", "--quiet"], is_flag=True, help="Say nothing but warnings and errors."),
        click.Option(["-v", "--verbose"], is_flag=True, help="Say more."),
    ]


def stage_command(name: str, stage: ModuleType) -> click.Command:
    """The subcommand of one stage."""

    def callback(**_values: Any) -> None:
        context = click.get_current_context()
        prepare(context.params)
        _warn_of_strange_variables(name, context.command)
        if not issubclass(stage.Options, TrainingOptions):
            refuse_several(name)
        with stdout_kept_clean() as stdout:
            options = read_options(stage, context)
            done: Plan | Outcome = stage.plan(options) if context.params["dry_run"] else stage.run(options)
            if isinstance(done, Outcome) and done.lines is not None:
                _stream(done.lines, stdout, as_json=context.params["as_json"])
                return
        if not processes.is_main():
            return
        if isinstance(done, Plan):
            if context.params["as_json"]:
                click.echo(json.dumps(plan_fields(name, done)))
            else:
                show_plan(name, done)
        else:
            answer(done, as_json=context.params["as_json"])

    documentation = inspect.cleandoc(stage.Options.__doc__ or "")
    return click.Command(
        name,
        params=[*parameters(stage.Options), *common_options()],
        callback=callback,
        help=f"{documentation}\n\n{arguments_help(stage.Options)}",
        short_help=documentation.strip().splitlines()[0],
        epilog=f"Example: {stage.EXAMPLE}",
    )


def refuse_several(name: str) -> None:
    """Refuse to be started as several processes.

    Raises:
        UsageError: it was.
    """
    if processes.count() > 1:
        raise UsageError(
            f"`{name}` works in one process, and {processes.count()} were started; call it without the launcher, which "
            "is for distill and finetune"
        )


def _stream(lines: Generator[str, None, None], stdout: int, *, as_json: bool) -> None:
    if as_json:
        raise UsageError("--json prints one object on standard output, where the data go; add --out FILE")
    write_lines(lines, stdout)


def _warn_of_strange_variables(name: str, command: click.Command) -> None:
    """Name the environment variables that look like options of this command and are none."""
    prefix = f"BIOSQUEEZE_{name.upper()}_"
    known = [prefix + str(parameter.name).upper() for parameter in command.params]
    for variable in sorted(os.environ):
        if variable.startswith(prefix) and variable not in known:
            progress.warn(f"{variable} is no option of {name}.{closest(variable, known)}")


def prepare(flags: Mapping[str, Any]) -> None:
    """Set how much is said, by us and by the libraries, before the first heavy import."""
    level = progress.Level.QUIET if flags["quiet"] else progress.Level.NORMAL
    progress.set_level(progress.Level.VERBOSE if flags["verbose"] else level)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if not os.environ.get("BIOSQUEEZE_DEBUG"):
        # What libraries say about themselves is for whoever looks for a bug; what matters we say in our own words.
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def answer(outcome: Outcome, *, as_json: bool) -> None:
    """The one line on standard output."""
    path = str(outcome.path)
    click.echo(json.dumps({"path": path, **outcome.facts}, default=str) if as_json else path)


def plan_fields(stage: str, plan: Plan) -> dict[str, Any]:
    """A plan for --json."""
    return {"stage": stage, **{k: str(v) if isinstance(v, Path) else v for k, v in vars(plan).items()}}


def show_plan(name: str, plan: Plan, *, owned: bool = False) -> None:
    """Print a plan on standard error; an owned output is replaced without --force."""
    click.echo(f"{name} would", err=True)
    for step in plan.steps:
        click.echo(f"  - {step}", err=True)
    if plan.parameters_before is not None:
        click.echo(f"  parameters before  {plan.parameters_before:>13,}", err=True)
    if plan.parameters_after is not None:
        share = f"  ({plan.parameters_after / plan.parameters_before:.0%})" if plan.parameters_before else ""
        click.echo(f"  parameters after   {plan.parameters_after:>13,}{share}", err=True)
    if plan.out is not None:
        state = (" (exists)" if owned else " (exists: needs --force)") if plan.out.exists() else ""
        click.echo(f"  output             {plan.out}{state}", err=True)
