"""The measuring processes as their parent sees them: started together, asked one at a time, ended in any case."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from biosqueeze.errors import SqueezeError

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_PATIENCE = 5.0


@dataclass
class Worker:
    """One measuring process."""

    label: str
    process: "subprocess.Popen[str]"
    errors: IO[bytes]

    def tell(self, order: Mapping[str, Any]) -> None:
        """Give it an order."""
        stdin = self.process.stdin
        if stdin is not None:
            # A process that is gone is reported by `hear`, with its last words.
            with contextlib.suppress(BrokenPipeError):
                stdin.write(json.dumps(order) + "\n")
                stdin.flush()

    def hear(self) -> dict[str, Any]:
        """Wait for its answer.

        Raises:
            SqueezeError: it explains a failure, or it is gone.
        """
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            raise SqueezeError(self._obituary())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise SqueezeError(str(answer["error"]))
        return answer

    def ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Give it an order and wait for the answer."""
        self.tell(order)
        return self.hear()

    def _obituary(self) -> str:
        code = self.process.wait()
        self.errors.seek(0)
        lines = [line for line in self.errors.read().decode(errors="replace").splitlines() if line.strip()]
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        last = lines[-1].strip() if lines else "it said nothing"
        hint = "; it may have run out of memory: try a smaller --batch-size" if code == -signal.SIGKILL else ""
        return f"the process that measured {self.label} {how} ({last}){hint}"

    def end(self) -> None:
        """Close its input, which ends it; kill it when that does not."""
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self.process.wait(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.close()


def _start(label: str, threads: int) -> Worker:
    environment = {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, str(threads)), "TOKENIZERS_PARALLELISM": "false"}
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - a pipe that nobody reads would block a talkative worker
    process = subprocess.Popen(
        [sys.executable, "-m", "biosqueeze.backends.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env=environment,
        # Ctrl-C in the terminal is for the parent, who ends its workers.
        start_new_session=True,
    )
    return Worker(label, process, errors)


@contextlib.contextmanager
def workers(labels: Sequence[str], threads: int) -> Iterator[list[Worker]]:
    """Start one process per label, each with so many threads. None is left when the block is, however it is left."""
    started: list[Worker] = []
    try:
        for label in labels:
            started.append(_start(label, threads))
        yield started
    except BaseException:
        for worker in started:
            worker.process.kill()
        raise
    finally:
        for worker in started:
            worker.end()
