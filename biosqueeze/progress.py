"""Log lines, warnings, tables and progress bars: on standard error, rich on a terminal, plain lines in a log.

Only `print_blocks` with `sys.stdout` writes to standard output.
"""

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from biosqueeze.system import processes
from biosqueeze.text_table import ASCII, TextTable, draw, wrapped_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, TaskID

LOG_EVERY_SECONDS = 15.0
_SPEED_SECONDS = 300.0  # over which the time left is estimated: one item may take many seconds
_LOG_WIDTH = 160
# Of a long error or warning; its end says what to do.
_MESSAGE_START, _MESSAGE_END, _LEAST_LEFT_OUT = 1200, 600, 200
# Control characters, and the marks that reverse the direction of text: a terminal obeys them.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Level(IntEnum):
    """Verbosity: --quiet, the default, and -v."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


@dataclass
class _ProgressState:
    level: Level = Level.NORMAL
    has_tables: bool = True
    bar: "Progress | None" = None  # on the terminal now; lines are printed above it
    collected: "list[str | CountedWarning] | None" = None  # where warnings go while they are not printed


_state = _ProgressState()


def get_level() -> Level:
    """Return how much is printed."""
    return _state.level


def set_level(level: Level) -> None:
    """Set how much `note`, `detail`, `table` and `track` print; warnings are always printed."""
    _state.level = level


def show_tables(*, shown: bool) -> None:
    """Set whether `table` draws: not where the same rows, or all facts, go to standard output."""
    _state.has_tables = shown


def plain_text(text: str) -> str:
    """Return text that a terminal shows and does not obey: its control characters, such as ESC, are spelled out."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def plain_message(text: str) -> str:
    """Return an error or warning for a terminal; where it quotes a value of many characters, the middle is left out."""
    plain = plain_text(text)
    left_out = len(plain) - _MESSAGE_START - _MESSAGE_END
    if left_out <= _LEAST_LEFT_OUT:
        return plain
    return f"{plain[:_MESSAGE_START]} [{left_out:,} characters left out] {plain[-_MESSAGE_END:]}"


def _console() -> "Console":
    if _state.bar is not None:
        return _state.bar.console
    # stderr is looked up at each call, so that redirection (and NO_COLOR, read by rich) is honoured.
    return _new_console(sys.stderr)


def _new_console(stream: TextIO) -> "Console":
    from rich.console import Console

    # Of the processes of one training only the main one prints.
    quiet = not processes.is_main()
    # Names and labels are text: rich replaces neither [markup] nor :emoji: in them.
    return Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True, quiet=quiet)


def note(message: str) -> None:
    """Print a log line, unless --quiet is given."""
    if _state.level >= Level.NORMAL:
        _console().print(plain_text(message))


def detail(message: str) -> None:
    """Print a log line if -v is given."""
    if _state.level >= Level.VERBOSE:
        _console().print(plain_text(message), style="dim")


@dataclass(frozen=True)
class CountedWarning:
    """A warning about `count` items; work that is done in pieces adds up the counts of warnings with equal `what`."""

    count: int
    what: str
    """What is true of these items: "inputs are longer than 128 tokens"."""
    total: int | None = None
    """Number of all items, where the message is to give it."""
    detail: str = ""
    """The rest of the sentence, which is left out of the sum."""

    def __str__(self) -> str:
        """Return the message: "3 of 40 inputs are longer than 128 tokens, and ..."."""
        of_total = "" if self.total is None else f" of {self.total:,}"
        return f"{self.count:,}{of_total} {self.what}{self.detail}"


def warn(message: str | CountedWarning) -> None:
    """Print a warning, with --quiet too."""
    if _state.collected is not None:
        _state.collected.append(message)
        return
    _console().print(plain_message(f"warning: {message}"), style="yellow")


def note_once(path: Path, message: str) -> None:
    """Print a note about a directory, such as a checkpoint, the first time only, however often it is opened."""
    _print_once(note, path.resolve(), message)


def warn_once(path: Path, message: str) -> None:
    """Print a warning about a directory, the first time only."""
    _print_once(warn, path.resolve(), message)


@cache
def _print_once(show: Callable[[str], None], path: Path, message: str) -> None:
    del path  # part of the cache key: distinguishes directories of the same name
    show(message)


def duration(seconds: float) -> str:
    """Return a time as one would say it: 0.4 s, 12 s, 3 min 12 s, 25 min, 2 h 5 min."""
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 10:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def milliseconds(value: float) -> str:
    """Return a time in milliseconds with one decimal, below 10 with two."""
    return f"{value:,.2f}" if value < 10 else f"{value:,.1f}"


def counted(number: int | None, noun: str) -> str:
    """Return a number with its noun: 1 thread, 1,200 threads; of an unknown number "? threads"."""
    return f"{'?' if number is None else f'{number:,}'} {noun}{'' if number == 1 else 's'}"


@contextmanager
def quietly() -> Iterator[None]:
    """Print only warnings and errors inside the block, for work that was reported before."""
    former, _state.level = _state.level, min(_state.level, Level.QUIET)
    try:
        yield
    finally:
        _state.level = former


@contextmanager
def collect_warnings() -> Iterator[list[str | CountedWarning]]:
    """Collect warnings in a list instead of printing them, for work that is done in pieces."""
    former, _state.collected = _state.collected, []
    try:
        yield _state.collected
    finally:
        _state.collected = former


def draws_tables() -> bool:
    """Whether `table` draws: neither --quiet, nor --json, nor --table is given."""
    return _state.level >= Level.NORMAL and _state.has_tables


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, keys: int = 1) -> None:
    """Draw a table on standard error that fits the terminal, unless --quiet or --json is given; see `TextTable`."""
    if draws_tables():
        _draw(TextTable(title, tuple(columns), tuple(tuple(map(str, row)) for row in rows), keys), _console())


def print_blocks(blocks: Iterable[str | TextTable], stream: TextIO | None = None) -> None:
    """Print texts and tables on a stream; by default on standard error, unless --quiet is given."""
    if stream is None and _state.level < Level.NORMAL:
        return
    console = _new_console(stream or sys.stderr)
    for block in blocks:
        if isinstance(block, TextTable):
            _draw(block, console)
        else:
            width = console.width if console.is_terminal else None
            console.print("\n".join(wrapped_lines(plain_text(block), width)))


def _draw(drawn: TextTable, console: "Console") -> None:
    styles = {"title": "bold", "heading": "bold"}
    replaced = ASCII if console.options.ascii_only else {}
    for line in draw(drawn.mapped(plain_text), console.width if console.is_terminal else _LOG_WIDTH):
        console.print(line.text.translate(replaced), style=styles.get(line.kind))
    console.print()


@dataclass
class ProgressBar:
    """Progress of one piece of work; `advance` redraws the bar, or prints a line every `LOG_EVERY_SECONDS`."""

    what: str
    total: int | None
    done: int = 0
    at_most: bool = False
    _bar: "Progress | None" = None
    _task: "TaskID | None" = None
    _started: float = field(default_factory=time.monotonic)
    _last_line: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        """Note what was done before."""
        self._done_before = self.done

    def advance(self, amount: int = 1, **facts: Any) -> None:
        """Add to the number of items done; facts (loss=0.31, speed="812 tokens/s") are shown beside it."""
        self.done += amount
        text = "  ".join(plain_text(v) if isinstance(v, str) else f"{k} {_short(v)}" for k, v in facts.items())
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self.done, facts=text)
        elif _state.level >= Level.NORMAL and time.monotonic() - self._last_line > LOG_EVERY_SECONDS:
            self._last_line = time.monotonic()
            note(f"{self.what}: {self.done}{self._of_total()}{self._eta()}  {text}".rstrip())

    def set_total(self, total: int, *, at_most: bool = False) -> None:
        """Change the number of items, where it is found out in between."""
        was_known, self.total, self.at_most = bool(self.total), total, at_most
        if self._bar is not None and self._task is not None:
            if not was_known:
                self._bar.columns = _columns(has_total=True)
            task = next(task for task in self._bar.tasks if task.id == self._task)
            task.total = total  # `update` would forget the speed
            self._bar.update(self._task, left=_beside_time(at_most))

    def _of_total(self) -> str:
        return f"/{self.total}" if self.total else ""

    def _eta(self) -> str:
        done_here = self.done - self._done_before
        if not self.total or done_here <= 0:
            return ""
        seconds = (time.monotonic() - self._started) / done_here * max(self.total - self.done, 0)
        return f", {'at most ' if self.at_most else ''}{duration(seconds)} left"


def _beside_time(at_most: bool) -> str:
    return "at most" if at_most else "left"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _columns(*, has_total: bool) -> "tuple[ProgressColumn, ...]":
    """Return the columns of a bar; with a loss and a speed they fit into 80 characters."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    name, facts = (TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[facts]}"))
    if not has_total:
        return name, TextColumn("{task.completed:,}"), facts
    left = TimeRemainingColumn(), TextColumn("{task.fields[left]}")
    return name, BarColumn(bar_width=9), MofNCompleteColumn(), *left, facts


@contextmanager
def track(what: str, total: int | None = None, done: int = 0, *, at_most: bool = False) -> Iterator[ProgressBar]:
    """Show progress with an estimate of the time left.

    Args:
        what: the label of the bar.
        total: number of items; None where it is unknown.
        done: number of items that an interrupted run did before.
        at_most: whether the work may end before all items are done.
    """
    console = _console()
    # Interactive is a terminal that can move its cursor; FORCE_COLOR makes a file one too.
    draws_bar = console.is_interactive and console.file.isatty()
    if _state.level < Level.NORMAL or not draws_bar or console.quiet:
        yield ProgressBar(what, total, done, at_most)
        return
    from rich.progress import Progress

    columns = _columns(has_total=bool(total))
    with Progress(*columns, console=console, speed_estimate_period=_SPEED_SECONDS) as bar:
        task = bar.add_task(plain_text(what), total=total, completed=done, facts="", left=_beside_time(at_most))
        former, _state.bar = _state.bar, bar
        try:
            yield ProgressBar(what, total, done, at_most, bar, task)
        finally:
            _state.bar = former
