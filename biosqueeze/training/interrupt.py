"""Ending a training at the end of a step when the user asks for it."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from biosqueeze import processes
from biosqueeze.progress import note


@contextmanager
def interrupt_handler() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C (or SIGTERM) into an event, so that the step in hand ends and its state is saved.

    A second one ends the process at once, unless it is one of several: to those a launcher hands on what the terminal
    has sent them already, and it kills them by itself after a while.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(number: int, _frame: object) -> None:
        if not asked.is_set():
            note("interrupted: saving the state after this step")
        asked.set()
        if processes.count() == 1:
            signal.signal(number, former[number])

    former: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in former:
        signal.signal(number, ask)
    try:
        yield asked
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
