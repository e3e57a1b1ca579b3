"""The measuring processes from their parent's side: start all, send requests to one at a time, end all in any case."""

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
from biosqueeze.system.module_path import safe_path

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_EXIT_TIMEOUT_SECONDS = 5.0
_LESS_MEMORY = "give smaller batches or shorter sequences, or measure fewer models at once"


@dataclass
class MeasuringProcess:
    """One running `measuring.worker`."""

    label: str
    process: "subprocess.Popen[str]"
    stderr: IO[bytes]

    def request(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and wait for the reply.

        Raises:
            SqueezeError: the process replied with an error, or has exited.
        """
        self._send(request)
        return self._receive()

    def _send(self, request: Mapping[str, Any]) -> None:
        stdin = self.process.stdin
        if stdin is not None:
            # `_receive` reports a process that has exited, with the last line of its standard error.
            with contextlib.suppress(BrokenPipeError):
                stdin.write(json.dumps(request) + "\n")
                stdin.flush()

    def _receive(self) -> dict[str, Any]:
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            raise SqueezeError(self._exit_message())
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise SqueezeError(str(reply["error"]))
        if "out_of_memory" in reply:
            raise SqueezeError(f"the memory is exhausted by {self.label}; {_LESS_MEMORY}")
        return reply

    def _exit_message(self) -> str:
        code = self.process.wait()
        self.stderr.seek(0)
        lines = [line for line in self.stderr.read().decode(errors="replace").splitlines() if line.strip()]
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        last_line = lines[-1].strip() if lines else "no message on standard error"
        hint = f"; it may have run out of memory: {_LESS_MEMORY}" if code == -signal.SIGKILL else ""
        return f"the process that measured {self.label} {how} ({last_line}){hint}"

    def end(self) -> None:
        """Close the input of the process, which ends it; kill it after a timeout."""
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self.process.wait(timeout=_EXIT_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.stderr.close()


def _start(label: str, threads: int) -> MeasuringProcess:
    settings = {**dict.fromkeys(_THREAD_VARIABLES, str(threads)), "TOKENIZERS_PARALLELISM": "false"}
    stderr = tempfile.TemporaryFile()  # noqa: SIM115 - an unread pipe would fill up and block the process
    process = subprocess.Popen(
        [sys.executable, "-m", "biosqueeze.measuring.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env={**os.environ, **settings, **safe_path()},
        # Ctrl-C in the terminal reaches the parent alone, which ends the processes.
        start_new_session=True,
    )
    return MeasuringProcess(label, process, stderr)


@contextlib.contextmanager
def measuring_processes(labels: Sequence[str], threads: int) -> Iterator[list[MeasuringProcess]]:
    """Start one process per label, each with `threads` threads; all have ended when the block is left."""
    started: list[MeasuringProcess] = []
    try:
        for label in labels:
            started.append(_start(label, threads))
        yield started
    except BaseException:
        for measuring_process in started:
            measuring_process.process.kill()
        raise
    finally:
        for measuring_process in started:
            measuring_process.end()
