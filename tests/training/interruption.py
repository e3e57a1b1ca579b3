"""Ctrl-C in the middle of a training."""

import signal
from typing import Any

from tests.training.runs import Evaluate


def press_ctrl_c() -> None:
    """Call the handler of SIGINT, without a real signal.

    A native library that another test loaded may have left the thread an alternate signal stack that is gone, on which
    the kernel would deliver a real one: the process would die of it.
    """
    handler = signal.getsignal(signal.SIGINT)
    assert callable(handler)
    handler(signal.SIGINT, None)


def interrupted(evaluate: Evaluate, at: int) -> Evaluate:
    """Return an evaluation that presses Ctrl-C in one of its calls, counted from 1, and then goes on."""
    calls = 0

    def score(model: Any) -> dict[str, float]:
        nonlocal calls
        calls += 1
        if calls == at:
            press_ctrl_c()
        return evaluate(model)

    return score
