"""Child process that measures one checkpoint on one backend: requests on standard input, replies on standard output.

Both are one JSON object a line (`->` to the worker, `<-` back):

    -> {"path": ..., "name": ..., "spec": "torch", "threads": 2, "device": "cpu",
        "vocabulary": 30522, "shapes": [[1, 128]], "warmup": 3, "overflowing": []}
    <- {"load_seconds": 0.8}                       import of the runtime included; every shape has run `warmup` times
    -> {"shape": [1, 128], "seconds": 0.5}
    <- {"milliseconds": [23.1, 22.9, ...],         at least three runs
        "seconds": 0.5, "waited_seconds": 0.01}    of all runs, and for how much of it a thread had no processor
    -> {"done": true}
    <- {"peak_rss_mb": 412.0}

A SqueezeError is replied as {"error": ...}, exhausted memory as {"out_of_memory": true}; any other exception ends the
process with a traceback on standard error.
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

from biosqueeze.backends import Batch, Predictor, open_predictor, parse_spec, use_device
from biosqueeze.backends.finite import check_finite
from biosqueeze.backends.int8_overflow import known
from biosqueeze.backends.onnx_limits import skip_checks
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError, is_out_of_memory
from biosqueeze.system.parent import end_with_parent
from biosqueeze.system.run_queue import longest_wait, waited_seconds

MINIMUM_RUNS = 3
# Untimed runs before each measurement: the process waited meanwhile, so its caches are cold and its threads asleep.
_UNTIMED_RUNS = 2

Reply = Callable[[Mapping[str, Any]], None]


def serve(requests: Iterator[Mapping[str, Any]], reply: Reply, clock: Callable[[], float] = time.perf_counter) -> None:
    """Load the model that the first request names, and process the other requests until there are no more."""
    first = next(requests)
    started = clock()
    checkpoint = Checkpoint(Path(first["path"]), first["name"])
    if parse_spec(first["spec"])[0] == "torch":
        use_device(first["spec"], first["device"])
    with known(first["overflowing"]):
        predictor = open_predictor(checkpoint, first["spec"], first["threads"])
    load_seconds = clock() - started
    batches = {tuple(shape): _random_batch(shape, first["vocabulary"]) for shape in first["shapes"]}
    for batch in batches.values():
        for _ in range(first["warmup"]):
            check_finite([predictor.predict(batch)], checkpoint, first["spec"])
    reply({"load_seconds": load_seconds})
    for request in requests:
        if request.get("done"):
            reply({"peak_rss_mb": peak_rss_mb()})
        else:
            started, before = clock(), waited_seconds()
            times = measure(predictor, batches[tuple(request["shape"])], request["seconds"], clock)
            facts = {"seconds": clock() - started, "waited_seconds": longest_wait(before, waited_seconds())}
            reply({"milliseconds": [1000 * seconds for seconds in times], **facts})


def measure(predictor: Predictor, batch: Batch, seconds: float, clock: Callable[[], float]) -> list[float]:
    """Run a batch repeatedly for `seconds`, at least `MINIMUM_RUNS` times; return the seconds of each run."""
    for _ in range(_UNTIMED_RUNS):
        predictor.predict(batch)
    times: list[float] = []
    end = clock() + seconds
    while len(times) < MINIMUM_RUNS or clock() < end:
        started = clock()
        predictor.predict(batch)
        times.append(clock() - started)
    return times


def _random_batch(shape: tuple[int, int], vocabulary: int) -> dict[str, Any]:
    """Return random ids (batch, length) without padding. Id 0 and the next few are special in most vocabularies."""
    low = min(1000, vocabulary // 2)
    ids = np.random.default_rng(0).integers(low, vocabulary, tuple(shape))
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def peak_rss_mb() -> float:
    """Return the peak resident memory of this process so far, in MB."""
    status = Path("/proc/self/status")
    if status.is_file():
        # Unlike getrusage, VmHWM does not start from the memory of the parent at the time of the fork.
        line = next(line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e6
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, others kilobytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def _private_stdout() -> TextIO:
    """Reserve standard output for replies; redirect everything that libraries print to standard error."""
    replies = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    return replies


def main() -> int:
    """Process requests until standard input is closed; return 1 after an error that is replied."""
    end_with_parent()
    skip_checks()
    out = _private_stdout()

    def reply(value: Mapping[str, Any]) -> None:
        out.write(json.dumps(value) + "\n")
        out.flush()

    try:
        serve((json.loads(line) for line in sys.stdin), reply)
    except SqueezeError as error:
        reply({"error": str(error)})
        return 1
    except BrokenPipeError:
        return 1
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        reply({"out_of_memory": True})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
