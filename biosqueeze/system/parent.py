"""End a process with its parent, however that ends: standard input is a pipe whose other end the parent alone holds."""

import os
import select
import signal
import threading


def end_with_parent() -> None:
    """Send this process SIGTERM as soon as the parent has ended: a training saves its state, all else ends at once.

    The pipe is watched and not read: it may hold requests. A parent that has ended before is noticed too.
    """
    threading.Thread(target=_watch, args=(0,), name="end with parent", daemon=True).start()


def _watch(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, 0)  # the end of the other side is reported in any case
    poll.poll()
    os.kill(os.getpid(), signal.SIGTERM)
