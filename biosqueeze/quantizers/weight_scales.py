"""Scales of int8 weights with which no product overflows, also on x86 processors without VNNI."""

import numpy as np
from numpy.typing import NDArray

from biosqueeze.backends.int8_overflow import MOST, pair_sums

LARGEST = 127
"""The largest int8 weight."""


def weight_scales(weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return one scale for each output, so that rounded weights are within int8 and their pairs within 16 bits.

    Two large neighbours with the same sign are rare, so most scales are far less than twice those of the full range,
    which weights of 7 bits would need.

    Args:
        weight: (inputs, outputs).

    Returns:
        (outputs,); 1 where all weights are zero.
    """
    # Rounding can make the sum of a pair larger by one.
    scales = np.maximum(np.abs(weight).max(0) / LARGEST, pair_sums(weight) / (MOST - 1))
    return np.where(scales == 0, 1, scales).astype(np.float32)


def rounded(weight: NDArray[np.float32], scales: NDArray[np.float32]) -> NDArray[np.int8]:
    """Return the int8 values of a weight (inputs, outputs) for the scales of its outputs."""
    values: NDArray[np.int8] = np.rint(weight / scales).clip(-LARGEST, LARGEST).astype(np.int8)
    return values
