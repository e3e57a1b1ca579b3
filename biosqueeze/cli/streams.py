"""Standard input and output carry paths; all messages go to standard error."""

import os
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager, redirect_stdout
from typing import Any

from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.system import processes

STDIN = "-"


@contextmanager
def clean_stdout() -> Iterator[int]:
    """Redirect to standard error what libraries write to standard output, from Python or from C.

    Yields:
        The descriptor of the original standard output.
    """
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield saved
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def read_dashes(values: Mapping[str, Any], *, data_on_stdin: bool) -> dict[str, Any]:
    """Replace the one value that is `-` (alone or in a tuple) by the path on standard input.

    Args:
        values: by option.
        data_on_stdin: whether another option reads data from standard input.

    Raises:
        UsageError: more than one is `-`, or standard input holds no path.
    """
    dashes = sum(v == STDIN if isinstance(v, str) else list(v).count(STDIN) for v in values.values() if _may_dash(v))
    if dashes == 0:
        return dict(values)
    if dashes > 1:
        raise UsageError("- is the path on standard input, so it can be given only once")
    if data_on_stdin:
        raise UsageError("the data are on standard input, so the checkpoint cannot be - too; name its directory")
    path = _path_on_stdin()
    return {key: _replace(value, path) if _may_dash(value) else value for key, value in values.items()}


def write_lines(lines: Generator[str, None, None], descriptor: int) -> None:
    """Write lines as they are computed, without a buffer.

    Raises:
        BrokenPipeError: the reader has closed the pipe.
        SqueezeError: standard output cannot be written to.
    """
    with closing(lines):
        for text in lines:
            rest = memoryview(text.encode())
            while rest:
                with explained_output():
                    rest = rest[os.write(descriptor, rest) :]


@contextmanager
def explained_output() -> Iterator[None]:
    """Explain in one line why the body cannot print on standard output.

    Raises:
        BrokenPipeError: the reader has closed the pipe.
        SqueezeError: standard output cannot be written to.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        cause = error.strerror or error
        raise SqueezeError(f"standard output cannot be written ({cause}); redirect it to another place") from error


def _may_dash(value: Any) -> bool:
    return isinstance(value, str | tuple)


def _replace(value: Any, path: str) -> Any:
    if isinstance(value, tuple):
        return tuple(_replace(item, path) for item in value)
    return path if value == STDIN else value


def _path_on_stdin() -> str:
    if processes.count() > 1:
        raise UsageError("- is read once, and several processes were started; name the checkpoint instead")
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("- reads a path from a pipe, and nothing is piped in; name the checkpoint instead")
    lines = [line.strip() for line in sys.stdin.read().splitlines() if line.strip()]
    if not lines:
        raise UsageError("- expects a path on standard input and got nothing; did the command before it fail?")
    if len(lines) > 1:
        raise UsageError(f"- expects one path on standard input and got {len(lines)} lines; pipe one checkpoint")
    if lines[0].startswith("{"):
        raise UsageError(
            "- expects a path on standard input and got JSON; leave --json out of the command before it, which then "
            "prints the path"
        )
    return lines[0]
