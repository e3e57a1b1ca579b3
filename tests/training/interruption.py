"""Ctrl-C in the middle of a training."""

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from biosqueeze.finetuning.options import FineTuningOptions
from tests.training import runs


def press_ctrl_c() -> None:
    """Call the handler of SIGINT, without a real signal.

    A native library that another test loaded may have left the thread an alternate signal stack that is gone, on which
    the kernel would deliver a real one: the process would die of it.
    """
    handler = signal.getsignal(signal.SIGINT)
    assert callable(handler)
    handler(signal.SIGINT, None)


def interrupted(evaluate: runs.Evaluate, at: int) -> runs.Evaluate:
    """Return an evaluation that presses Ctrl-C in one of its calls, counted from 1, and then goes on."""
    calls = 0

    def score(model: Any) -> dict[str, float]:
        nonlocal calls
        calls += 1
        if calls == at:
            press_ctrl_c()
        return evaluate(model)

    return score


def cut_and_resumed(
    directory: Path, options: FineTuningOptions, evaluate: runs.Evaluate, at: int, **more: Any
) -> runs.Run:
    """Press Ctrl-C in an evaluation of a training, and return the run that goes on from there."""
    with pytest.raises(KeyboardInterrupt):
        runs.run(directory, options, evaluate=interrupted(evaluate, at), **more)
    return runs.run(directory, replace(options, resume=True), evaluate=evaluate, **more)
