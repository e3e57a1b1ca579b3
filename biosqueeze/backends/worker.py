"""One model on one backend in a process of its own, told on standard input what to measure: one JSON object a line.

    -> {"path": ..., "name": ..., "spec": "torch", "threads": 2, "vocabulary": 30522, "shapes": [[1, 128]], "warmup": 3}
    <- {"load_seconds": 0.8}                       import of the runtime included; all shapes have run `warmup` times
    -> {"shape": [1, 128], "seconds": 0.5}
    <- {"milliseconds": [23.1, 22.9, ...]}         at least three runs
    -> {"done": true}
    <- {"peak_rss_mb": 412.0}

An explained failure is {"error": ...}; anything else ends the process with a traceback on standard error.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from biosqueeze.backends import Batch, Predictor, open_predictor
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError

LEAST_RUNS = 3
# Untimed runs when a worker's turn comes: its caches are cold and its threads asleep.
_REWARM = 2

Answer = Callable[[Mapping[str, Any]], None]


def serve(orders: Iterator[Mapping[str, Any]], answer: Answer, clock: Callable[[], float] = time.perf_counter) -> None:
    """Load what the first order names, and measure what the others ask for, until there are no more."""
    first = next(orders)
    started = clock()
    predictor = open_predictor(Checkpoint(Path(first["path"]), first["name"]), first["spec"], first["threads"])
    loaded = clock() - started
    batches = {tuple(shape): _batch(shape, first["vocabulary"]) for shape in first["shapes"]}
    for batch in batches.values():
        for _ in range(first["warmup"]):
            predictor.predict(batch)
    answer({"load_seconds": loaded})
    for order in orders:
        if order.get("done"):
            answer({"peak_rss_mb": peak_rss_mb()})
        else:
            times = measure(predictor, batches[tuple(order["shape"])], order["seconds"], clock)
            answer({"milliseconds": [1000 * seconds for seconds in times]})


def measure(predictor: Predictor, batch: Batch, seconds: float, clock: Callable[[], float]) -> list[float]:
    """Seconds of each run, for so many seconds and at least `LEAST_RUNS` runs."""
    for _ in range(_REWARM):
        predictor.predict(batch)
    times: list[float] = []
    end = clock() + seconds
    while len(times) < LEAST_RUNS or clock() < end:
        started = clock()
        predictor.predict(batch)
        times.append(clock() - started)
    return times


def _batch(shape: tuple[int, int], vocabulary: int) -> dict[str, Any]:
    """Random ids without any padding: (batch, length). Id 0 and the first few are special in most vocabularies."""
    low = min(1000, vocabulary // 2)
    ids = np.random.default_rng(0).integers(low, vocabulary, tuple(shape))
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def peak_rss_mb() -> float:
    """The most memory that this process has held so far, in MB."""
    status = Path("/proc/self/status")
    if status.is_file():
        # Unlike getrusage, this does not begin with what the parent held when it started us.
        line = next(line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e6
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, others kilobytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def _private_stdout() -> TextIO:
    """Standard output for answers alone; whatever libraries print goes to standard error."""
    mine = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    return mine


def main() -> int:
    """Answer the orders on standard input until it is closed; 1 after an explained failure."""
    out = _private_stdout()

    def answer(value: Mapping[str, Any]) -> None:
        out.write(json.dumps(value) + "\n")
        out.flush()

    try:
        serve((json.loads(line) for line in sys.stdin), answer)
    except SqueezeError as error:
        answer({"error": str(error)})
        return 1
    except BrokenPipeError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
