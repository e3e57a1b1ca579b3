"""Save the state of torch's random generators, and draw from it again."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class RngState:
    """A copy of the current state of the generators on the CPU and the device.

    With it, a later forward pass can drop the same units as an earlier one.
    """

    def __init__(self, device: torch.device) -> None:
        self.cpu = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        self.device = device

    @contextmanager
    def replay(self) -> Iterator[None]:
        """Draw from the saved state inside the context; afterwards the generators have their current state again."""
        with torch.random.fork_rng(devices=[self.device] if self.cuda is not None else []):
            torch.set_rng_state(self.cpu)
            if self.cuda is not None:
                torch.cuda.set_rng_state(self.cuda, self.device)
            yield
