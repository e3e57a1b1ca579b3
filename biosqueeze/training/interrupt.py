"""Ending a training at the end of a step when the user asks for it."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from biosqueeze.progress import note


@contextmanager
def politely_interrupted() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C (or SIGTERM) into an event, so that the step in hand ends and its state is saved."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(number: int, _frame: object) -> None:
        asked.set()
        note("interrupted: saving the state after this step")
        signal.signal(number, former[number])

    former: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in former:
        signal.signal(number, ask)
    try:
        yield asked
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
