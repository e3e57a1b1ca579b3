"""Apply a function to many items in worker processes, with the progress of all together."""

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Advance = Callable[[int], Any]
_POLL_SECONDS = 0.5
_state: dict[str, Any] = {}  # of a worker process, set once


def map_in_processes(
    function: Callable[[Item, Advance], Result], items: Sequence[Item], workers: int, advance: Advance
) -> list[Result]:
    """Return the results in the order of the items.

    Args:
        function: is called with an item and a function that reports progress; it is pickled once for each worker.
        items: are pickled.
        workers: processes; with one, the items are done in this process.
        advance: is called with the progress of all workers.
    """
    if workers == 1 or len(items) < 2:
        return [function(item, advance) for item in items]
    context = multiprocessing.get_context("spawn")
    counter = context.Value("q", 0)
    with ProcessPoolExecutor(min(workers, len(items)), context, _set_up, (function, counter)) as pool:
        futures = [pool.submit(_apply, item) for item in items]
        try:
            waiting, shown = set(futures), 0
            while waiting:
                done, waiting = wait(waiting, _POLL_SECONDS, FIRST_COMPLETED)
                now = counter.value
                advance(now - shown)
                shown = now
                for future in done:
                    future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in futures]


def _set_up(function: Callable[[Any, Advance], Any], counter: Any) -> None:
    def advance(count: int) -> None:
        with counter.get_lock():
            counter.value += count

    _state.update(function=function, advance=advance)


def _apply(item: Any) -> Any:
    return _state["function"](item, _state["advance"])
