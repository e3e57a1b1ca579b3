"""How long the threads of this process wait for a processor, as Linux counts it."""

from collections.abc import Mapping
from pathlib import Path

_THREADS = Path("/proc/self/task")


def waited_seconds() -> dict[int, float]:
    """Return the seconds for which each thread was ready to run, and other work had the processors, by its number.

    Empty where the kernel does not count them.
    """
    waited = {}
    for folder in _THREADS.glob("*"):
        try:
            _, nanoseconds, _ = (folder / "schedstat").read_text(encoding="ascii").split()
        except (OSError, ValueError):  # the thread has ended, or there are no such counts
            continue
        waited[int(folder.name)] = int(nanoseconds) / 1e9
    return waited


def longest_wait(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """Return how many seconds the thread that waited most did so between two calls of `waited_seconds`."""
    return max((seconds - before.get(thread, 0.0) for thread, seconds in after.items()), default=0.0)
