"""The processes that train one model together, as `accelerate launch` and torchrun start them. Torch-free."""

import os

_COUNTS = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
_INDICES = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")


def count() -> int:
    """How many there are; 1 for a command that runs by itself."""
    return _first_of(_COUNTS, 1)


def index() -> int:
    """Which one this is, from 0."""
    return _first_of(_INDICES, 0)


def is_main() -> bool:
    """Whether this is the one that speaks and writes."""
    return index() == 0


def sharded() -> bool:
    """Whether they share out the weights of what they train (FSDP)."""
    return os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"


def wait() -> None:
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
