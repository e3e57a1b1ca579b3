"""Rank and number of the processes that train one model, started by `accelerate launch` or torchrun. Torch-free."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from biosqueeze.errors import UsageError

_COUNTS = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
_INDICES = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
_LOCAL_INDEX = "LOCAL_RANK"
_OF_TORCHRUN = ("LOCAL_WORLD_SIZE", "GROUP_", "ROLE_", "TORCHELASTIC_", "MASTER_", "ACCELERATE_")
LAUNCHER = (*_COUNTS, *_INDICES, _LOCAL_INDEX, *_OF_TORCHRUN)
"""Beginnings of the names of the environment variables that a launcher sets."""
_LONGEST = 10  # digits of a number of processes
_SHARDING = "ACCELERATE_USE_FSDP"


def count() -> int:
    """Return the number of processes; 1 without a launcher.

    Raises:
        UsageError: the launcher's environment variable is no positive number.
    """
    return _first_of(_COUNTS, default=1, least=1)


def index() -> int:
    """Return the rank of this process, from 0. Without several processes, variables such as RANK mean nothing.

    Raises:
        UsageError: the launcher's environment variable is no rank below the number of processes.
    """
    return _first_of(_INDICES, default=0, least=0, most=count() - 1) if count() > 1 else 0


def check() -> None:
    """Check the environment variables of a launcher.

    Raises:
        UsageError: one of them is no number, or out of range.
    """
    index()
    local_index()


def check_alone(command: str) -> None:
    """Check that a command that runs in one process was not started in several.

    Raises:
        UsageError: it was.
    """
    if count() > 1:
        raise UsageError(
            f"`{command}` runs in one process, and {count()} were started; start it without the launcher, which is for "
            "pretrain, distill and finetune"
        )


def local_index() -> int:
    """Return the rank of this process among those on its machine, from 0; 0 without a launcher.

    Raises:
        UsageError: the launcher's environment variable is no rank.
    """
    return _first_of((_LOCAL_INDEX,), default=0, least=0) if _is_launched() else 0


@contextmanager
def hidden_stray_rank() -> Iterator[None]:
    """Hide a LOCAL_RANK without a number of processes from Accelerate, which would wait for other processes."""
    stray = None if _is_launched() else os.environ.pop(_LOCAL_INDEX, None)
    try:
        yield
    finally:
        if stray is not None:
            os.environ[_LOCAL_INDEX] = stray


def is_main() -> bool:
    """Return whether this is the main process: the one that prints and writes files."""
    return index() == 0


def sharding() -> bool:
    """Return whether models are sharded over the processes: `accelerate launch --use_fsdp`."""
    return count() > 1 and os.environ.get(_SHARDING, "false").lower() == "true"


@contextmanager
def replicated() -> Iterator[None]:
    """Have Accelerate replicate the models that it prepares in every process, even with --use_fsdp."""
    sharding_value = os.environ.pop(_SHARDING, None)
    try:
        yield
    finally:
        if sharding_value is not None:
            os.environ[_SHARDING] = sharding_value


def barrier() -> None:
    """Wait for all processes; return at once where they have not been joined."""
    if count() > 1:
        import torch.distributed as group

        if group.is_available() and group.is_initialized():
            group.barrier()


def leave() -> None:
    """Leave the process group at the end."""
    if count() > 1:
        import torch.distributed as group

        if group.is_available() and group.is_initialized():
            group.destroy_process_group()


def _is_launched() -> bool:
    return any(os.environ.get(name) for name in _COUNTS)


def _first_of(names: tuple[str, ...], *, default: int, least: int, most: int | None = None) -> int:
    """Return the number in the first of these environment variables that is set."""
    name = next((name for name in names if os.environ.get(name)), None)
    if name is None:
        return default
    text = os.environ[name].strip()
    number = int(text) if text.removeprefix("-").isdecimal() and len(text) < _LONGEST else None
    if number is None or number < least or (most is not None and number > most):
        allowed = f"from {least} to {most}" if most is not None else f"of at least {least}"
        raise UsageError(
            f"the environment variable {name} is {os.environ[name]!r}, and a number {allowed} was expected; unset it, "
            "or start the command with `accelerate launch` or torchrun"
        )
    return number
