"""Where a process computes."""

import os

import torch


def own_device() -> torch.device:
    """Where this process trains: its own accelerator, the first if it is alone, or else the CPU."""
    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return torch.device(kind.type, int(os.environ.get("LOCAL_RANK", "0"))) if kind else torch.device("cpu")
