"""Hash integers to uniform 64-bit integers."""

import numpy as np
from numpy.typing import NDArray


def splitmix64(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the hash of each value, by the finaliser of SplitMix64 (Steele et al. 2014, section 3)."""
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    hashes: NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
    return hashes
