"""The processes that train one model together, as `accelerate launch` and torchrun start them. Torch-free."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_COUNTS = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
_INDICES = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
_SHARDING = "ACCELERATE_USE_FSDP"


def count() -> int:
    """How many there are; 1 for a command that runs by itself."""
    return _first_of(_COUNTS, 1)


def index() -> int:
    """Which one this is, from 0."""
    return _first_of(_INDICES, 0)


def is_main() -> bool:
    """Whether this is the one that speaks and writes."""
    return index() == 0


def sharding() -> bool:
    """Whether each is to hold a part of a teacher's weights alone: `accelerate launch --use_fsdp`."""
    return count() > 1 and os.environ.get(_SHARDING, "false").lower() == "true"


@contextmanager
def replicated() -> Iterator[None]:
    """Within, Accelerate copies what it prepares to every process, as if --use_fsdp had not been said."""
    asked = os.environ.pop(_SHARDING, None)
    try:
        yield
    finally:
        if asked is not None:
            os.environ[_SHARDING] = asked


def barrier() -> None:
    """Go on when all are here; at once where they have not been joined."""
    if count() > 1:
        import torch.distributed as group

        if group.is_available() and group.is_initialized():
            group.barrier()


def leave() -> None:
    """Part from the others at the end."""
    if count() > 1:
        import torch.distributed as group

        if group.is_available() and group.is_initialized():
            group.destroy_process_group()


def _first_of(names: tuple[str, ...], otherwise: int) -> int:
    return next((int(os.environ[name]) for name in names if os.environ.get(name)), otherwise)
