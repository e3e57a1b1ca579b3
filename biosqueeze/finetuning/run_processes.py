"""Subprocesses that run `biosqueeze` commands side by side, each on its GPU or its share of the cores. Torch-free."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.system.cores import usable_cores
from biosqueeze.system.module_path import safe_path
from biosqueeze.training.resuming.interrupt import TERMINATION, handled

COMMAND = (sys.executable, "-m", "biosqueeze.cli.child")
# Environment variables that set options of this command, and must not set those of the commands that it starts.
_OWN_OPTIONS = ("BIOSQUEEZE_FINETUNE_", "BIOSQUEEZE_EVAL")
# The variable that gives all runs of a search one dev split of --dev-share, whatever their --seed.
SPLIT_SEED = "BIOSQUEEZE_SPLIT_SEED"
# Beginnings of the last lines by which a command says why it failed; all others are its progress.
_MESSAGES = ("error: ", "bug: ", "interrupted")

Slot = Mapping[str, str]  # environment variables


@dataclass
class RunProcesses:
    """The running subprocesses, and the slots (GPUs, or shares of the cores) that are free."""

    slots: SimpleQueue[Slot] = field(default_factory=SimpleQueue)
    running: set["subprocess.Popen[str]"] = field(default_factory=set)
    stopping: threading.Event = field(default_factory=threading.Event)  # no further run is started
    interrupted: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)  # of `running` and `interrupted`
    dropped: tuple[str, ...] = _OWN_OPTIONS
    """Beginnings of the names of environment variables that the subprocesses do not get."""

    def interrupt(self) -> None:
        """Send SIGINT to every subprocess once: it saves its state and ends."""
        self.stopping.set()
        with self.lock:
            self.interrupted.set()
            for process in self.running:
                _interrupt(process)

    def call(self, name: str, arguments: Sequence[str], slot: Slot, log: Path) -> str:
        """Run one `biosqueeze` command; return its standard output.

        It gets its own session, so that it receives a Ctrl-C only once: from `interrupt`, and not from the terminal.
        It ends when this process ends: its standard input is a pipe that nothing is written to; see `parent`.

        Args:
            name: of the run, for messages.
            arguments: of the command.
            slot: environment variables.
            log: file that standard error is appended to.

        Raises:
            SqueezeError: the command failed; the message is its own, or names the signal that ended it.
        """
        environment = {k: v for k, v in os.environ.items() if not k.startswith(self.dropped)}
        log.parent.mkdir(parents=True, exist_ok=True)
        begin = log.stat().st_size if log.exists() else 0  # what is before is of earlier commands
        with log.open("a", encoding="utf-8") as errors:
            process = subprocess.Popen(
                [*COMMAND, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**environment, **safe_path(), **slot},
                start_new_session=True,
            )
            with self.lock:
                self.running.add(process)
                if self.interrupted.is_set():  # while it was started
                    _interrupt(process)
            try:
                output = process.stdout.read() if process.stdout else ""
                process.wait()
            finally:
                with self.lock:
                    self.running.discard(process)
                _close_pipes(process)
        if process.returncode:
            raise _failure(name, process.returncode, log, begin)
        return output


def _interrupt(process: "subprocess.Popen[str]") -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)


def _close_pipes(process: "subprocess.Popen[str]") -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()


def _failure(name: str, code: int, log: Path, begin: int) -> SqueezeError:
    """Return the error of a command that failed.

    Args:
        name: of the run.
        code: exit code; below 0: the signal that ended the process.
        log: its standard error, beside that of earlier commands.
        begin: byte of the log where that of this command begins.
    """
    if code < 0:
        memory = ", perhaps for lack of memory" if -code == signal.SIGKILL else ""
        return SqueezeError(
            f"{name} was killed by signal {-code} ({_signal_name(-code)}){memory}; the same command goes on "
            f"(its whole output: {log})"
        )
    lines = log.read_bytes()[begin:].decode(errors="replace").splitlines()
    messages = [line for line in lines if line.startswith(_MESSAGES)]
    last = messages[-1].removeprefix("error: ") if messages else "it ended without a message"
    kind: Callable[[str], SqueezeError] = UsageError if code == UsageError.exit_code else SqueezeError
    return kind(f"{name}: {last} (exit code {code}; its whole output: {log})")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return "a signal without a name"


def slots_for(jobs: int | None, *, on_any_gpu: bool = True) -> list[Slot]:
    """Return the slot of each run that goes side by side.

    Args:
        jobs: how many, at least 1; None: one per GPU, or one where there is no GPU.
        on_any_gpu: whether each run is given a GPU; else it uses the device that --device names.
    """
    gpus = _gpus() if on_any_gpu else []
    count = jobs or max(1, len(gpus))
    if gpus:
        return [{"CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]} for i in range(count)]
    return [{"OMP_NUM_THREADS": str(max(1, usable_cores() // count))} if count > 1 else {} for _ in range(count)]


def _gpus() -> list[str]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name.strip() not in ("", "-1")]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


@contextmanager
def interrupted_on_termination() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP, so that no subprocess outlives this process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    with handled(TERMINATION, interrupt):
        yield
