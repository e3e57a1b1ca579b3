"""How PyTorch's threads wait for one another. Torch-free: GNU OpenMP reads its settings once, when it is loaded."""

import os

_SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
_SPINS = "20000"  # about a millisecond


def limit_spinning() -> None:
    """Let threads spin for about a millisecond at a barrier, then sleep, unless the environment sets how they wait.

    By default GNU OpenMP spins 300,000 times, some 15 ms. Where other programs use the processors, a thread that spins
    takes the time that the one it waits for needs, and a training gets many times slower. Spinning for a fifteenth of
    that is as fast on a quiet machine; sleeping at once (OMP_WAIT_POLICY=passive) is slower there.
    """
    if not any(name in os.environ for name in _SETTINGS):
        os.environ["GOMP_SPINCOUNT"] = _SPINS
