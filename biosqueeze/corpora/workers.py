"""Apply a function to many items in worker processes, with the progress of all together."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar

from biosqueeze.errors import SqueezeError

Item = TypeVar("Item")
Result = TypeVar("Result")
Advance = Callable[[int], Any]
_POLL_SECONDS = 0.5
_state: dict[str, Any] = {}  # of a worker process, set once


def map_in_processes(
    function: Callable[[Item, Advance], Result], items: Sequence[Item], workers: int, advance: Advance
) -> list[Result]:
    """Return the results in the order of the items.

    The workers end soon after this process, however it ends, and after an interruption.

    Args:
        function: is called with an item and a function that reports progress; it is pickled once for each worker.
        items: are pickled.
        workers: processes; with one, the items are done in this process.
        advance: is called with the progress of all workers.

    Raises:
        SqueezeError: a worker was killed.
    """
    if workers == 1 or len(items) < 2:
        return [function(item, advance) for item in items]
    context = multiprocessing.get_context("spawn")
    counter, stopped = context.Value("q", 0), context.RawValue("b", 0)
    with ProcessPoolExecutor(min(workers, len(items)), context, _set_up, (function, counter, stopped)) as pool:
        try:
            with _main_hidden():
                futures = [pool.submit(_apply, item) for item in items]  # which starts the workers
            _wait(futures, counter, advance)
        except BrokenProcessPool as error:
            raise SqueezeError(
                "a worker process was killed, perhaps because the memory is exhausted; give fewer --workers, and "
                "--resume"
            ) from error
        except BaseException:
            stopped.value = 1
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in futures]


@contextmanager
def _main_hidden() -> Iterator[None]:
    """Hide the program's main module: each worker would run it again, and a script that calls `corpus` with it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _wait(futures: Sequence["Future[Any]"], counter: Any, advance: Advance) -> None:
    """Wait for all futures; raise the first error of one."""
    waiting, shown = set(futures), 0
    while waiting:
        done, waiting = wait(waiting, _POLL_SECONDS, FIRST_COMPLETED)
        now = counter.value
        advance(now - shown)
        shown = now
        for future in done:
            future.result()


def _set_up(function: Callable[[Any, Advance], Any], counter: Any, stopped: Any) -> None:
    def advance(count: int) -> None:
        with counter.get_lock():
            counter.value += count

    _state.update(function=function, advance=advance)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal interrupts all; the parent tells the workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, args=(stopped,), daemon=True).start()


def _end_with_parent(stopped: Any) -> None:
    """End this worker when the parent has ended, or sets `stopped`."""
    parent = multiprocessing.parent_process()
    while parent is not None and parent.is_alive() and not stopped.value:
        time.sleep(_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def _apply(item: Any) -> Any:
    return _state["function"](item, _state["advance"])
