"""The command line: subcommands found in the registry, errors mapped to exit codes."""

import io
import os
import sys
import tempfile
import traceback
from pathlib import Path

import click

from biosqueeze import __version__, registry
from biosqueeze.cli import recipe
from biosqueeze.cli.command import stage_command
from biosqueeze.cli.help import write_examples, write_overview
from biosqueeze.errors import SqueezeError, UsageError, is_lost_process, is_out_of_memory
from biosqueeze.options import Purpose
from biosqueeze.progress import plain_message
from biosqueeze.system import cores, processes, threads
from biosqueeze.system.os_errors import advice_for

EXAMPLES = (
    (
        "Shrink, distil, quantize and measure in a pipe",
        "biosqueeze shrink T --layers 6 | biosqueeze distill - --teacher T --data D | biosqueeze quantize - "
        "| biosqueeze bench T -",
    ),
    ("The same steps as a recipe, offline, in a few minutes", "biosqueeze run quickstart"),
)
EXIT_BUG = 3
EXIT_INTERRUPTED = 130
_NO_HOME = "Could not determine home directory."  # pathlib's, of ~NAME/... where no user is called NAME


class Squeeze(click.Group):
    """A group that imports the file of a stage when its command is used; no library is imported before it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the stages and `run`, sorted."""
        return sorted([*registry.names("stages"), "run"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the subcommand of that name, or None."""
        if cmd_name == "run":
            return recipe.command
        if cmd_name not in registry.names("stages"):
            return None
        return stage_command(cmd_name, registry.load("stages", cmd_name))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by purpose, then the options."""
        stages = {name: registry.load("stages", name) for name in registry.names("stages")}
        commands = [
            (getattr(stage, "PURPOSE", Purpose.PIPELINE), name, stage_command(name, stage).get_short_help_str(limit=80))
            for name, stage in stages.items()
        ]
        commands.append((recipe.PURPOSE, "run", recipe.command.get_short_help_str(limit=80)))
        options = [record for option in self.get_params(ctx) if (record := option.get_help_record(ctx))]
        write_overview(formatter, commands, options)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        write_examples(formatter, EXAMPLES)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the command; the error for an unknown one names the nearest."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            names = self.list_commands(ctx)
            ctx.fail(f"there is no command {args[0]!r}.{registry.closest(args[0], names)} Known: {', '.join(names)}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=Squeeze,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "BIOSQUEEZE",
        "max_content_width": 110,
    },
)
@click.version_option(__version__, prog_name="biosqueeze")
def cli() -> None:
    """Make biomedical encoders small and fast.

    Each command reads a checkpoint (directory, Hub id, or - for a path on standard input), writes a new one, and prints
    its path, so that commands can be piped.

    The environment variable BIOSQUEEZE_<COMMAND>_<OPTION> sets the default of an option.

    Exit codes: 0 done, 1 explained failure, 2 wrong usage, 3 bug, 4 score below --min, 130 interrupted.
    """


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit with its exit code."""
    sys.exit(run(args))


def run(args: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    threads.limit_spinning()
    cores.limit_threads_to_quota()
    try:
        processes.check()
    except UsageError as error:  # which process prints is unknown, so each does
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    if sys.stdout is None:
        click.echo("error: standard output is closed; redirect it to a file, or to /dev/null", err=True)
        return SqueezeError.exit_code
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What is piped is UTF-8, as the files are; a terminal of another encoding shows what it can.
        sys.stdout.reconfigure(encoding=None if sys.stdout.isatty() else "utf-8", errors="replace")
    if isinstance(sys.stdin, io.TextIOWrapper):  # a path may have bytes that are not UTF-8
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    return _run(args)


def _run(args: list[str] | None) -> int:
    try:
        code = cli.main(args=args, prog_name="biosqueeze", standalone_mode=False)
        processes.leave()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        return _report_click_error(error)
    except SqueezeError as error:
        _print(f"error: {error}", in_all=error.exit_code != UsageError.exit_code)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort) as error:
        return _report_interruption(error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except Exception as error:  # last resort: a bug is reported in one line, with its traceback in a log
        return _report_failure(error)


def _print(text: str, *, in_all: bool = False) -> None:
    """Print on standard error: in the main process alone, or with `in_all` in every process that trains."""
    if processes.is_main():
        click.echo(plain_message(text), err=True)
    elif in_all:
        click.echo(plain_message(f"process {processes.index()}: {text}"), err=True)


def _report_click_error(error: click.ClickException) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    context = error.ctx if isinstance(error, click.UsageError) else None
    hint = f" (see {context.command_path} --help)" if context else ""
    _print(f"error: {' '.join(error.format_message().split())}{hint}")
    return error.exit_code


def _report_interruption(error: BaseException) -> int:
    """Report Ctrl-C. Click replaces the KeyboardInterrupt, whose message says what was saved, by an Abort without one.

    It does so with an EOFError too, which is no interruption.
    """
    if isinstance(error.__cause__, EOFError):
        return _report_failure(error.__cause__)
    message = str(error.__cause__ or error)
    _print(f"interrupted: {message}" if message else "interrupted")
    return EXIT_INTERRUPTED


def _report_failure(error: Exception) -> int:
    if processes.count() > 1 and is_lost_process(error):
        _print("error: another process of this training has ended; see its message", in_all=True)
        return 1
    if is_out_of_memory(error):
        _print("error: the memory is exhausted; lower --batch-size or --max-length, or end other programs", in_all=True)
        return 1
    if isinstance(error, RuntimeError) and str(error) == _NO_HOME:
        _print(
            "error: a path begins with ~, and there is no such home directory; write it in full (BIOSQUEEZE_CACHE too)"
        )
        return 1
    advice = advice_for(error)
    return _report_os_error(error, advice) if isinstance(error, OSError) and advice else _report_bug(error)


def _report_os_error(error: OSError, advice: str) -> int:
    place = f"{error.filename}: " if error.filename else ""
    _print(f"error: {place}{error.strerror}; {advice}", in_all=True)
    return 1


def _report_bug(error: Exception) -> int:
    trace = traceback.format_exc()
    if os.environ.get("BIOSQUEEZE_DEBUG"):
        click.echo(trace, err=True)
    handle, name = tempfile.mkstemp(prefix="biosqueeze-", suffix=".log")
    os.close(handle)
    Path(name).write_text(
        f"biosqueeze {__version__}\n{' '.join(sys.argv)}\n\n{trace}", encoding="utf-8", errors="backslashreplace"
    )
    summary = (str(error).strip().splitlines() or [""])[0]
    _print(f"bug: {type(error).__name__}: {summary}", in_all=True)
    _print(f"This is an error in biosqueeze. The traceback is in {name}; please report it.", in_all=True)
    return EXIT_BUG
