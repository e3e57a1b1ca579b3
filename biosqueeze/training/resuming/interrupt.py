"""End a training after the current step on Ctrl-C, SIGTERM or SIGHUP."""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from biosqueeze.progress import note
from biosqueeze.system import processes

# The terminal was closed; not every system has this signal.
_HANG_UP = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()
TERMINATION = (signal.SIGTERM, *_HANG_UP)


@contextmanager
def interrupt_handler() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C (or SIGTERM, SIGHUP) into an event, so that the current step ends and its state is saved.

    A second Ctrl-C or SIGTERM ends the process at once, unless it is one of several processes: a launcher forwards the
    signals that the terminal has sent to them already, and kills them by itself after a while. A second SIGHUP does
    nothing: a terminal that is closed sends one, and its shell another.
    """
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def handle(number: int, _frame: FrameType | None) -> None:
        is_first = not interrupted.is_set()
        interrupted.set()
        if is_first:
            _note_interrupt()
        if processes.count() == 1 and number not in _HANG_UP:
            signal.signal(number, former[number])

    with handled((signal.SIGINT, *TERMINATION), handle) as former:
        yield interrupted


@contextmanager
def handled(
    numbers: Iterable[int], handler: Callable[[int, FrameType | None], None]
) -> Iterator[Mapping[int, Callable[[int, FrameType | None], Any] | int | None]]:
    """Handle signals in the main thread, except those that this process was started to ignore, as SIGHUP under nohup.

    Yields:
        the handlers before, by signal.
    """
    handlers = {number: signal.getsignal(number) for number in numbers}
    former = {number: before for number, before in handlers.items() if before is not signal.SIG_IGN}
    for number in former:
        signal.signal(number, handler)
    try:
        yield former
    finally:
        for number, before in former.items():
            signal.signal(number, before)


def _note_interrupt() -> None:
    """Print a log line; where the terminal is gone, discard all that is printed from now on."""
    try:
        note("interrupted: saving the state after this step")
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for descriptor in (1, 2):
            os.dup2(nowhere, descriptor)
