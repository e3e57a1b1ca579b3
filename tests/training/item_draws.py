"""The random numbers of one item of a source, as a loader hands them to it."""

import numpy as np


def rng_of(item: int) -> np.random.Generator:
    return np.random.default_rng([7, item])
