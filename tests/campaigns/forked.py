"""Subprocesses that run Python modules of biosqueeze, as forks: starting an interpreter takes seconds, a fork none."""

import contextlib
import importlib
import multiprocessing
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

from tests.campaigns.faults import REQUEST

_RUN_MODULE = [sys.executable, "-m"]


class ForkedPopen(subprocess.Popen):
    """Popen, but `python -m biosqueeze...` is a fork of this process."""

    @classmethod
    def install(cls) -> None:
        """Replace subprocess.Popen in this process, and have worker processes be forks too."""
        subprocess.Popen = cls  # type: ignore[misc]
        of_default = multiprocessing.get_context
        multiprocessing.get_context = lambda method=None: of_default(method and "fork")  # type: ignore[assignment]

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, *rest: Any) -> None:
        words = list(args) if not isinstance(args, str) else []
        if words[:2] != _RUN_MODULE or not str(words[2]).startswith("biosqueeze"):
            super()._execute_child(args, executable, preexec_fn, close_fds, *rest)
            return
        _, cwd, env, _, _, _, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *more = rest
        self.pid = os.fork()
        if self.pid == 0:
            _run_module(words[2:], (p2cread, c2pwrite, errwrite), cwd, env, preexec_fn, start_new_session=more[5])
        self._child_created = True
        for ours, theirs in ((p2cwrite, p2cread), (c2pread, c2pwrite), (errread, errwrite)):
            if ours != -1:
                os.close(theirs)


def _run_module(
    words: list[str], streams: tuple[int, ...], cwd: Any, env: Any, preexec_fn: Any, *, start_new_session: bool
) -> NoReturn:
    code = 99
    try:
        for number, descriptor in enumerate(streams):
            if descriptor != -1:
                os.dup2(descriptor, number)
        _close_as_exec_does()
        if start_new_session:
            os.setsid()
        if cwd is not None:
            os.chdir(cwd)
        if env is not None:
            os.environ.clear()
            os.environ.update(env)
        if preexec_fn is not None:
            preexec_fn()
        reopen_standard_streams()
        code = _exit_code(words)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def reopen_standard_streams() -> None:
    """Have Python's standard streams use the descriptors 0, 1 and 2 as they are now."""
    sys.stdin = os.fdopen(0, "r", encoding="utf-8", closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))


def _close_as_exec_does() -> None:
    for path in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):
            if int(path.name) > 2 and not os.get_inheritable(int(path.name)):
                os.close(int(path.name))


def _exit_code(words: list[str]) -> int:
    module, *arguments = words
    sys.argv = [module, *arguments]
    try:
        if module == "biosqueeze":
            from biosqueeze.cli import main

            return main.run(arguments)
        runpy.run_module(module, run_name="__main__")
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    return 0


def use_hub() -> None:
    """Have huggingface_hub read the environment again, and audit its requests."""
    import httpx2
    import huggingface_hub.constants

    importlib.reload(huggingface_hub.constants)
    send = httpx2.Client.send

    def audited(client: Any, request: Any, **options: Any) -> Any:
        sys.audit(REQUEST, request.url.path)
        return send(client, request, **options)

    httpx2.Client.send = audited  # type: ignore[method-assign]
