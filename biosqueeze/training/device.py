"""The device of this process."""

import torch

from biosqueeze import processes


def own_device() -> torch.device:
    """Return the device that this process trains on: the accelerator of its LOCAL_RANK, else the CPU."""
    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return torch.device(kind.type, processes.local_index()) if kind else torch.device("cpu")
