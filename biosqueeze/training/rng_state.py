"""The state of the random generators, saved and restored."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class RngState:
    """The random generators as they are now, so that a later pass can drop the same units.

    With other units dropped, the term would measure dropout, which moves a prediction far more than the noise does.
    """

    def __init__(self, device: torch.device) -> None:
        self.cpu = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        self.device = device

    @contextmanager
    def replay(self) -> Iterator[None]:
        """Repeat the draws; afterwards the generators are as before."""
        with torch.random.fork_rng(devices=[self.device] if self.cuda is not None else []):
            torch.set_rng_state(self.cpu)
            if self.cuda is not None:
                torch.cuda.set_rng_state(self.cuda, self.device)
            yield
