"""What a stage says while it works: standard error only, rich on a terminal, plain lines in a log."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

LOG_EVERY_SECONDS = 15.0


class Level(IntEnum):
    """How much is said."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


@dataclass
class _Voice:
    level: Level = Level.NORMAL


_voice = _Voice()


def set_level(level: Level) -> None:
    """Set how much `note`, `detail`, `table` and `track` say; warnings are always said."""
    _voice.level = level


def _console() -> "Console":
    from rich.console import Console

    # stderr is looked up at each call, so that redirection (and NO_COLOR, read by rich) is honoured.
    return Console(file=sys.stderr, highlight=False, soft_wrap=True)


def note(message: str) -> None:
    """Say what happens, one line."""
    if _voice.level >= Level.NORMAL:
        _console().print(message, markup=False)


def detail(message: str) -> None:
    """Say what only -v wants to know."""
    if _voice.level >= Level.VERBOSE:
        _console().print(message, style="dim", markup=False)


def warn(message: str) -> None:
    """Say what the user should know even with --quiet."""
    _console().print(f"warning: {message}", style="yellow", markup=False)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Draw a table on standard error; columns whose cells all look like numbers are right-aligned."""
    if _voice.level < Level.NORMAL:
        return
    from rich import box
    from rich.table import Table

    drawn = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, title_style="bold")
    for index, column in enumerate(columns):
        numeric = all(_looks_numeric(str(row[index])) for row in rows)
        drawn.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(str(cell) for cell in row))
    console = _console()
    if not console.is_terminal:
        console.width = 160
    console.print(drawn, soft_wrap=False)


def _looks_numeric(cell: str) -> bool:
    return not cell or cell[0].isdigit() or cell == "-" or (cell[0] in "+-" and cell[1:2].isdigit())


@dataclass
class Tracker:
    """Progress of one piece of work: `advance` it; it draws a bar, or a line every so often."""

    what: str
    total: int | None
    done: int = 0
    _bar: "Progress | None" = None
    _task: "TaskID | None" = None
    _started: float = field(default_factory=time.monotonic)
    _last_line: float = field(default_factory=time.monotonic)

    def advance(self, amount: int = 1, **facts: Any) -> None:
        """Add to what is done; facts (loss=0.31, speed="812 tokens/s") stand beside the bar."""
        self.done += amount
        text = "  ".join(f"{key} {_short(value)}" for key, value in facts.items())
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self.done, facts=text)
        elif _voice.level >= Level.NORMAL and time.monotonic() - self._last_line > LOG_EVERY_SECONDS:
            self._last_line = time.monotonic()
            note(f"{self.what}: {self.done}{self._of_total()}{self._eta()}  {text}".rstrip())

    def _of_total(self) -> str:
        return f"/{self.total}" if self.total else ""

    def _eta(self) -> str:
        if not self.total or not self.done:
            return ""
        left = (time.monotonic() - self._started) / self.done * (self.total - self.done)
        return f", {left:.0f} s left"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@contextmanager
def track(what: str, total: int | None = None, done: int = 0) -> Iterator[Tracker]:
    """Show progress with an estimate of the time left; `done` is where a resumed piece of work starts."""
    console = _console()
    if _voice.level < Level.NORMAL or not console.is_terminal:
        yield Tracker(what, total, done)
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[facts]}"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(what, total=total, completed=done, facts="")
        yield Tracker(what, total, done, bar, task)
