"""The command line: subcommands found in the registry, errors mapped to exit codes."""

import os
import sys
import tempfile
import traceback
from pathlib import Path

import click

from biosqueeze import __version__, processes, registry
from biosqueeze.cli import recipe
from biosqueeze.cli.command import stage_command
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.os_errors import advice_for

EXIT_BUG = 3
EXIT_INTERRUPTED = 130


class Squeeze(click.Group):
    """Loads a stage's file when its name is asked for, and no library before it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Stages and `run`, by name."""
        return sorted([*registry.names("stages"), "run"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand of that name, or None."""
        if cmd_name == "run":
            return recipe.command
        if cmd_name not in registry.names("stages"):
            return None
        return stage_command(cmd_name, registry.load("stages", cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As Click does, with the nearest name in the error."""
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
    epilog="Example: biosqueeze shrink T --layers 6 | biosqueeze distill - --teacher T | biosqueeze quantize -",
)
@click.version_option(__version__, prog_name="biosqueeze")
def cli() -> None:
    """Make biomedical encoders small and fast.

    Each command reads a checkpoint (directory, Hub id, or - for a path on standard input), writes a new one, and prints
    its path, so that commands chain in a pipe.

    An option can also be set by BIOSQUEEZE_<COMMAND>_<OPTION>. Exit codes: 0 done, 1 explained failure, 2 usage, 3 bug,
    4 quality gate missed, 130 interrupted.
    """


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 explained, 2 usage, 3 bug, 4 quality gate missed, 130 interrupted."""
    sys.exit(run(args))


def run(args: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    try:
        code = cli.main(args=args, prog_name="biosqueeze", standalone_mode=False)
        processes.leave()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        return _say_in_one_line(error)
    except SqueezeError as error:
        _say(f"error: {error}", everywhere=error.exit_code != UsageError.exit_code)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort) as error:
        # Click turns the KeyboardInterrupt, which says what was saved, into an Abort without words.
        said = str(error.__cause__ or error)
        _say(f"interrupted: {said}" if said else "interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except Exception as error:  # the last resort: a bug is reported with a log, never as a wall of text
        advice = advice_for(error)
        return _report_os_error(error, advice) if isinstance(error, OSError) and advice else _report_bug(error)


def _say(text: str, *, everywhere: bool = False) -> None:
    """Of processes that train together, only the main one says what all would say alike."""
    if processes.is_main():
        click.echo(text, err=True)
    elif everywhere:
        click.echo(f"process {processes.index()}: {text}", err=True)


def _say_in_one_line(error: click.ClickException) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    context = error.ctx if isinstance(error, click.UsageError) else None
    hint = f" (see {context.command_path} --help)" if context else ""
    _say(f"error: {' '.join(error.format_message().split())}{hint}")
    return error.exit_code


def _report_os_error(error: OSError, advice: str) -> int:
    place = f"{error.filename}: " if error.filename else ""
    _say(f"error: {place}{error.strerror}; {advice}", everywhere=True)
    return 1


def _report_bug(error: Exception) -> int:
    trace = traceback.format_exc()
    if os.environ.get("BIOSQUEEZE_DEBUG"):
        click.echo(trace, err=True)
    handle, name = tempfile.mkstemp(prefix="biosqueeze-", suffix=".log")
    os.close(handle)
    Path(name).write_text(f"biosqueeze {__version__}\n{' '.join(sys.argv)}\n\n{trace}", encoding="utf-8")
    summary = (str(error).strip().splitlines() or [""])[0]
    _say(f"bug: {type(error).__name__}: {summary}", everywhere=True)
    _say(f"This is our fault. The traceback is in {name}; please report it.", everywhere=True)
    return EXIT_BUG
