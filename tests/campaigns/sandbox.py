"""Run command lines of biosqueeze in forks of this process: no time is lost on imports, and each has limits.

An experiment has a folder: `work` is the current directory of its commands; `cache` and `tmp` are theirs alone.
"""

import contextlib
import ctypes
import importlib
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

from tests.campaigns.faults import Fault, Watch
from tests.campaigns.forked import ForkedPopen, reopen_standard_streams, use_hub
from tests.fake_hub import running_hub

MEGABYTES = 1000.0  # beyond what this process has
SECONDS = 30.0
HUB = "hub"
_ADDRESS_SPACE = 4 << 30  # beyond this process's, so that a command which takes all memory does not end the campaign
_FILE_SIZE = 1 << 30
_ORPHAN_SECONDS = 10.0
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PDEATHSIG = 1
_NOT_IMPORTED = ("__main__", "tests", "_pytest")


@dataclass(frozen=True)
class Command:
    """A command line without the word biosqueeze, its standard input, and environment variables of its own."""

    words: Sequence[str]
    stdin: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ended:
    """How a command ended; a negative code is a signal."""

    code: int
    out: str
    err: str
    seconds: float
    megabytes: float
    hung: bool
    events: tuple[str, ...]  # changes of the file system
    orphans: int = 0  # processes that ran on after the command had ended

    @property
    def killed(self) -> bool:
        """Return whether a fault has killed the command."""
        return self.code == -signal.SIGKILL and not self.hung


@dataclass(frozen=True)
class Running:
    """A command in a fork."""

    pid: int
    logs: Path
    started: float


class Folder:
    """The folder of an experiment.

    Args:
        root: its path.
        hub: environment variables that name a Hub, for its commands.
    """

    def __init__(self, root: Path, hub: Mapping[str, str] | None = None) -> None:
        self.root, self.work = root, root / "work"
        self._hub = hub or {}
        self._count = 0
        for name in ("work", "tmp", "cache", "logs"):
            (root / name).mkdir(exist_ok=True)

    def run(self, command: Command, fault: Fault | None = None, *, kill_after: float | None = None) -> Ended:
        """Run a command to its end; `kill_after` these seconds it gets SIGKILL, as a fault."""
        ended = _wait(self.start(command, fault), kill_after)
        return _with(ended, orphans=_end_orphans())

    def run_input(self, command: Command) -> Ended:
        """Run a command that must succeed, and import what it needed.

        Raises:
            RuntimeError: it failed.
        """
        ended = self.run(command)
        if ended.code:
            raise RuntimeError(f"{' '.join(command.words)}: {ended.err}")
        import_all(self.imported())
        return ended

    def run_together(
        self, commands: Sequence[Command], fault: Fault | None = None, *, launched: bool = False, delay: float = 0.0
    ) -> list[Ended]:
        """Run commands at the same time.

        Args:
            commands: the first one starts at once.
            fault: of the first.
            launched: as one training; all end when one has failed.
            delay: seconds before each of the others starts.
        """
        running = [self.start(commands[0], fault)]
        for command in commands[1:]:
            time.sleep(delay)
            running.append(self.start(command))
        if launched:
            _end_with_the_first_failure(running)
        ended = [_wait(one) for one in running]
        orphans = _end_orphans()
        return [_with(one, orphans=orphans) for one in ended]

    def start(self, command: Command, fault: Fault | None = None) -> Running:
        """Start a command in a fork, as the leader of a session."""
        self._count += 1
        logs = self.root / "logs" / str(self._count)
        logs.mkdir()
        pid = os.fork()
        if pid == 0:
            _run_in_fork(replace(command, environment={**self._hub, **command.environment}), self.root, logs, fault)
        return Running(pid, logs, time.monotonic())

    def imported(self) -> list[str]:
        """Return the modules that the last command had imported."""
        return (self.root / "logs" / str(self._count) / "modules").read_text(encoding="utf-8").splitlines()


@contextlib.contextmanager
def folder(inputs: Path | None = None, *, with_hub: bool = False) -> Iterator[Folder]:
    """Provide a folder with a copy of the inputs; it is deleted at the end.

    Args:
        inputs: are copied to `work`.
        with_hub: the commands have a Hub, whose files are shown in the folder `hub`.
    """
    root = Path(tempfile.mkdtemp(prefix="campaign-"))
    try:
        with running_hub(root / HUB) if with_hub else contextlib.nullcontext() as hub:
            made = Folder(root, hub.settings if hub else None)
            if inputs is not None:
                shutil.copytree(inputs, made.work, symlinks=True, dirs_exist_ok=True)
            yield made
    finally:
        shutil.rmtree(root, ignore_errors=True)


def import_all(names: Sequence[str]) -> None:
    """Import what a command needed, so that later forks have it."""
    for name in names:
        if name not in sys.modules and not name.startswith(_NOT_IMPORTED):
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def adopt_orphans() -> None:
    """Become the parent of processes whose own parent has ended, so that they can be found."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent() -> None:
    """Let this process be killed when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _run_in_fork(command: Command, root: Path, logs: Path, fault: Fault | None) -> NoReturn:
    code = 99
    try:
        os.setsid()
        os.chdir(root / "work")
        _set_limits()
        _redirect(command, logs)
        os.environ.update(TMPDIR=str(root / "tmp"), BIOSQUEEZE_CACHE=str(root / "cache"), **command.environment)
        tempfile.tempdir = None
        signal.signal(signal.SIGINT, signal.default_int_handler)
        ForkedPopen.install()
        if "HF_ENDPOINT" in command.environment:
            use_hub()
        Watch(root, logs / "events", fault).install()
        from biosqueeze.cli import main

        code = main.run(list(command.words))
        sys.stdout.flush()
        sys.stderr.flush()
        (logs / "modules").write_text("\n".join(sys.modules), encoding="utf-8")
    finally:
        os._exit(code)


def _set_limits() -> None:
    virtual = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    for name, value in ((resource.RLIMIT_AS, virtual + _ADDRESS_SPACE), (resource.RLIMIT_FSIZE, _FILE_SIZE)):
        resource.setrlimit(name, (value, value))


def _redirect(command: Command, logs: Path) -> None:
    (logs / "in").write_text(command.stdin, encoding="utf-8")
    for number, (name, mode) in enumerate((("in", "r"), ("out", "w"), ("err", "w"))):
        with (logs / name).open(mode, encoding="utf-8") as stream:
            os.dup2(stream.fileno(), number)
    reopen_standard_streams()


def _wait(running: Running, kill_after: float | None = None) -> Ended:
    limit = SECONDS if kill_after is None else kill_after
    in_time = _ends_within(running.pid, limit)
    if not in_time:
        os.kill(running.pid, signal.SIGKILL)
    _, status, usage = os.wait4(running.pid, 0)
    out, err, events = (_read(running.logs / name) for name in ("out", "err", "events"))
    return Ended(
        code=os.waitstatus_to_exitcode(status),
        out=out,
        err=err,
        seconds=time.monotonic() - running.started,
        megabytes=usage.ru_maxrss / 1000 - _resident_megabytes(),
        hung=not in_time and kill_after is None,
        events=tuple(events.splitlines()),
    )


def _ends_within(pid: int, seconds: float) -> bool:
    handle = os.pidfd_open(pid)
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


def _end_with_the_first_failure(running: Sequence[Running]) -> None:
    """Do what a launcher does: wait until all have ended, or one has failed; then end the others."""
    handles = {os.pidfd_open(one.pid): one.pid for one in running}
    try:
        left = set(handles)
        deadline = time.monotonic() + SECONDS
        while left and time.monotonic() < deadline:
            for handle in select.select(list(left), [], [], 1.0)[0]:
                left.discard(handle)
                info = os.waitid(os.P_PID, handles[handle], os.WEXITED | os.WNOWAIT)
                if info is not None and info.si_status:
                    for other in left:
                        os.kill(handles[other], signal.SIGTERM)
    finally:
        for handle in handles:
            os.close(handle)


def _end_orphans() -> int:
    """Wait for the processes that a command has left; kill and count those that do not end by themselves."""
    deadline = time.monotonic() + _ORPHAN_SECONDS
    orphans = 0
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return orphans
        if pid == 0:
            if time.monotonic() > deadline:
                orphans += _kill_children()
            time.sleep(0.01)


def _kill_children() -> int:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    return len(children)


def _with(ended: Ended, *, orphans: int) -> Ended:
    return Ended(**{**vars(ended), "orphans": orphans})


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _resident_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 1e6
