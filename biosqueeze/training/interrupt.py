"""End a training after the current step on Ctrl-C or SIGTERM."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from biosqueeze import processes
from biosqueeze.progress import note


@contextmanager
def interrupt_handler() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C (or SIGTERM) into an event, so that the current step ends and its state is saved.

    A second signal ends the process at once, unless it is one of several processes: a launcher forwards the signals
    that the terminal has sent to them already, and kills them by itself after a while.
    """
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def handle(number: int, _frame: object) -> None:
        if not interrupted.is_set():
            note("interrupted: saving the state after this step")
        interrupted.set()
        if processes.count() == 1:
            signal.signal(number, former[number])

    former: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in former:
        signal.signal(number, handle)
    try:
        yield interrupted
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
