"""What all subcommands share: flags, the one line on standard output, the plan of --dry-run."""

import inspect
import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Generator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from biosqueeze import progress
from biosqueeze.cli.help import StageCommand, StageOption
from biosqueeze.cli.parameters import arguments_of, parameters, read_options
from biosqueeze.cli.streams import clean_stdout, explained_output, write_lines
from biosqueeze.cli.summary import print_summary
from biosqueeze.errors import UsageError
from biosqueeze.files.parsing import DOCUMENT_MEGABYTES, LINE_MEGABYTES, VARIABLE
from biosqueeze.options import Group, Outcome, Plan
from biosqueeze.suggestions import suggest
from biosqueeze.system import processes
from biosqueeze.text_table import formatted_rows

TABLE_FORMATS = ("md", "csv", "json")


def general_options(*, has_table: bool = False) -> list[click.Parameter]:
    """Return the options of the command line itself, which every command has; `has_table` adds --table."""
    flags = {
        ("--json", "as_json"): "Print one JSON object instead of the path.",
        ("--dry-run",): "Print what would be done, and write nothing.",
        ("-q", "--quiet"): "Print only warnings and errors.",
        ("-v", "--verbose"): "Print more details.",
    }
    table = StageOption(
        ["--table", "table_format"],
        type=click.Choice(TABLE_FORMATS),
        help="Print the table in place of the path: Markdown, CSV or JSON rows.",
        group=Group.GENERAL,
    )
    return [
        *([table] if has_table else []),
        *(StageOption(names, is_flag=True, help=text, group=Group.GENERAL) for names, text in flags.items()),
        StageOption(
            ["--max-record-mb"],
            type=click.IntRange(1, 1_000_000),
            bounds="1 to 1,000,000",
            metavar="MB",
            help=f"Longest line to read, and largest file that is parsed as a whole (JSON, XML, TOML). Default: "
            f"{LINE_MEGABYTES} and {DOCUMENT_MEGABYTES}.",
            group=Group.GENERAL,
        ),
    ]


def stage_command(name: str, stage: ModuleType) -> click.Command:
    """Return the subcommand of a stage."""
    description = inspect.cleandoc(stage.Options.__doc__ or "")
    return StageCommand(
        name,
        params=[*parameters(stage.Options), *general_options(has_table=stage.Options.HAS_TABLE)],
        callback=lambda **_values: _run_stage(name, stage),
        help=description,
        short_help=description.splitlines()[0],
        arguments=arguments_of(stage.Options),
        examples=stage.EXAMPLES,
    )


def _run_stage(name: str, stage: ModuleType) -> None:
    context = click.get_current_context()
    as_json, table_format = context.params["as_json"], context.params.get("table_format")
    if as_json and table_format:
        raise UsageError("--json and --table both print on standard output; give one of them")
    set_up_process(context.params)
    warn_of_unknown_variables(name, context.command)
    if not stage.Options.SEVERAL_PROCESSES:
        processes.check_alone(name)
    with clean_stdout() as stdout:
        options = read_options(stage, context)
        started = time.monotonic()
        result: Plan | Outcome = stage.plan(options) if context.params["dry_run"] else stage.run(options)
        if isinstance(result, Outcome) and result.lines is not None:
            _stream(result.lines, stdout, as_json=as_json)
            return
    if not processes.is_main():
        return
    if isinstance(result, Outcome):
        print_summary(result.summary, time.monotonic() - started)
        with explained_output():
            print_outcome(result, as_json=as_json, table_format=table_format)
    elif as_json:
        with explained_output():
            click.echo(json.dumps(plan_as_dict(name, result)))
    else:
        # A command without --force adds to what is there.
        print_plan(name, result, replaces=not hasattr(options, "force"))


def _stream(lines: Generator[str, None, None], stdout: int, *, as_json: bool) -> None:
    if as_json:
        raise UsageError("--json prints one object on standard output, where the data go; add --out FILE")
    write_lines(lines, stdout)


def warn_of_unknown_variables(name: str, command: click.Command) -> None:
    """Warn of environment variables that look like options of this command and are none."""
    prefix = f"BIOSQUEEZE_{name.upper()}_"
    known = [option.variable for option in command.params if isinstance(option, StageOption)]
    for variable in sorted(os.environ):
        option = variable.removeprefix(prefix)
        if variable.startswith(prefix) and option not in known:
            suggestion = suggest(option, known)
            near = f" Did you mean {prefix + suggestion.name!r}?" if suggestion else ""
            progress.warn(f"{variable} is no option of {name}.{near}")


def set_up_process(params: Mapping[str, Any]) -> None:
    """Set what is read at most, and how much is printed. Call it before the libraries are imported."""
    level = progress.Level.QUIET if params["quiet"] else progress.Level.NORMAL
    progress.set_level(progress.Level.VERBOSE if params["verbose"] else level)
    if params["max_record_mb"] is not None:
        os.environ[VARIABLE] = str(params["max_record_mb"])  # for the processes that are started, too
    progress.show_tables(shown=not (params["as_json"] or params.get("table_format")))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if not os.environ.get("BIOSQUEEZE_DEBUG"):
        # The libraries' own messages help to find bugs; what matters to users is in our messages.
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def print_outcome(outcome: Outcome, *, as_json: bool, table_format: str | None = None) -> None:
    """Print the result on standard output: the path, the answer of a query, a table, or one JSON object."""
    if as_json:
        click.echo(json.dumps({"path": str(outcome.path), **outcome.facts}, default=str))
    elif table_format:
        click.echo(formatted_rows(outcome.rows, table_format), nl=False)
    elif outcome.blocks is not None:
        progress.print_blocks(outcome.blocks, sys.stdout)
    else:
        click.echo(str(outcome.path))


def plan_as_dict(stage: str, plan: Plan) -> dict[str, Any]:
    """Return a plan for --json."""
    return {"stage": stage, **{k: str(v) if isinstance(v, Path) else v for k, v in vars(plan).items()}}


def print_plan(name: str, plan: Plan, *, replaces: bool) -> None:
    """Print a plan on standard error. With `replaces`, an existing output is replaced without --force."""
    click.echo(progress.plain_text(f"{name} would"), err=True)
    for step in plan.steps:
        click.echo(progress.plain_text(f"  - {step}"), err=True)
    if plan.parameters_before is not None:
        click.echo(f"  parameters before  {plan.parameters_before:>13,}", err=True)
    if plan.parameters_after is not None:
        share = f"  ({plan.parameters_after / plan.parameters_before:.0%})" if plan.parameters_before else ""
        click.echo(f"  parameters after   {plan.parameters_after:>13,}{share}", err=True)
    if plan.out is not None:
        state = (" (exists)" if replaces else " (exists: needs --force)") if plan.out.exists() else ""
        click.echo(progress.plain_text(f"  output             {plan.out}{state}"), err=True)
