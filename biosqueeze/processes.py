"""Rank and number of the processes that train one model, started by `accelerate launch` or torchrun. Torch-free."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_COUNTS = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
_INDICES = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
_SHARDING = "ACCELERATE_USE_FSDP"


def count() -> int:
    """Return the number of processes; 1 without a launcher."""
    return _first_of(_COUNTS, 1)


def index() -> int:
    """Return the rank of this process, from 0."""
    return _first_of(_INDICES, 0)


def is_main() -> bool:
    """Return whether this is the main process: the one that prints and writes files."""
    return index() == 0


def sharding() -> bool:
    """Return whether frozen models are sharded over the processes: `accelerate launch --use_fsdp`."""
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


def _first_of(names: tuple[str, ...], default: int) -> int:
    return next((int(os.environ[name]) for name in names if os.environ.get(name)), default)
